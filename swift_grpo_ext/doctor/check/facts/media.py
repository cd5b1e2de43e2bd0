"""Images, videos and audio of a row, searched for in the same places as in ms-swift."""

import os
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from swift_grpo_ext.doctor.check.facts.files import Row
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.errors import DatasetRowError

KINDS = ("images", "videos", "audios")
_NOT_LOCAL = ("http:", "https:", "data:", "oss:", "s3:")


@dataclass(frozen=True)
class SeenMedium:
    """An image, a video or a sound of a row."""

    entry: Any  # with an absolute path, if it is here
    fault: str = ""  # empty if sound
    fix: str = "fix or drop the row"
    turned: bool = False  # it has an EXIF orientation


Media = dict[str, list[SeenMedium]]  # by `KINDS`


def media_of(run: Run, row: Row, folder: Path) -> Media:
    """The media of a row; ``folder`` is that of its dataset."""
    media = {}
    for kind in KINDS:
        value = row.get(kind) or []
        entries = value if isinstance(value, list) else [value]
        media[kind] = [_medium(run, entry, folder, opens=kind == "images") for entry in entries]
    return media


def _medium(run: Run, entry: Any, folder: Path, *, opens: bool) -> SeenMedium:
    from swift_grpo_ext.models.images import local_path

    source = entry if isinstance(entry, dict) else {"path": entry}
    name = source.get("path")
    if source.get("bytes") is None and isinstance(name, str):
        if name.startswith(_NOT_LOCAL):
            return SeenMedium(entry)
        # Relative to the working folder, else to ROOT_IMAGE_DIR; longer text than a path is base64.
        local = local_path(name[:2000])
        root = run.environ.get("ROOT_IMAGE_DIR")
        path = run.find(local) or run.find(str(Path(root or "").expanduser() / local))
        if path is not None and path.is_file():
            absolute = str(path.resolve())
            entry = {**source, "path": absolute} if isinstance(entry, dict) else absolute
        elif os.path.isfile(folder / name):
            fix = f"export ROOT_IMAGE_DIR={folder}, or start the run there, or write absolute paths"
            return SeenMedium(entry, f"{name} lies beside the dataset, where ms-swift does not look", fix)
        elif len(name) <= 200:  # no fault if a program of the script may write it
            return SeenMedium(entry, "" if run.command.makes_files else f"{name} not found")
    return _opened(entry) if opens else SeenMedium(entry)


def _opened(image: Any) -> SeenMedium:
    """The image with the fault, or the EXIF orientation, found by opening it."""
    from PIL import ExifTags, Image

    from swift_grpo_ext.models.images import decoding, describe, read_source

    try:
        with decoding(describe(image)):
            content = BytesIO(read_source(image, _no_download))
            Image.open(content).verify()
            turned = Image.open(content).getexif().get(ExifTags.Base.Orientation, 1) != 1
    except DatasetRowError as error:
        return SeenMedium(image, f"{error.what}: {error.where}")
    return SeenMedium(image, turned=turned)


def _no_download(url: str) -> BytesIO:
    raise OSError(f"{url:.80} is not downloaded")
