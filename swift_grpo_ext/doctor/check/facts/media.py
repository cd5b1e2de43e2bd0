"""Images, videos and audio of a row, looked for where ms-swift looks for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.doctor.check.facts.files import Row
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.errors import DatasetRowError

if TYPE_CHECKING:
    from swift_grpo_ext.models.images import ImageSource

TAGS = {"images": "<image>", "videos": "<video>", "audios": "<audio>"}
_NOT_LOCAL = ("http:", "https:", "data:", "oss:", "s3:")


@dataclass(frozen=True)
class SeenMedium:
    """An image, a video or a sound of a row."""

    entry: ImageSource  # with an absolute path, where it lies here
    fault: str = ""  # what is wrong with it
    fix: str = ""
    pixels: int | None = None  # of an image that was opened


Media = dict[str, list[SeenMedium]]  # by the names of `TAGS`


def media_of(run: Run, row: Row, folder: Path) -> Media:
    """The media of a row of a dataset that lies in a folder."""
    listed = {kind: row.get(kind) or [] for kind in TAGS}
    return {
        kind: [
            _medium(run, entry, folder, opens=kind == "images")
            for entry in (value if isinstance(value, list) else [value])
        ]
        for kind, value in listed.items()
    }


def _medium(run: Run, entry: Any, folder: Path, *, opens: bool) -> SeenMedium:
    name = entry.get("path") if isinstance(entry, dict) else entry
    if not (isinstance(entry, dict) and entry.get("bytes") is not None):
        if not isinstance(name, str) or name.startswith(_NOT_LOCAL):
            return SeenMedium(entry)
        path = _local_file(run, name)
        if path is not None:
            entry = {**entry, "path": str(path)} if isinstance(entry, dict) else str(path)
        elif os.path.isfile(folder / name):
            fix = f"export ROOT_IMAGE_DIR={folder}, or start the run there, or write absolute paths"
            return SeenMedium(entry, f"{name} lies beside the dataset, where ms-swift does not look", fix)
        elif len(name) <= 200:
            return SeenMedium(entry, f"{name} not found")
    try:
        return SeenMedium(entry, pixels=_pixels(entry) if opens else None)
    except DatasetRowError as error:
        return SeenMedium(entry, f"{error.what}: {error.where}", error.fix)


def _pixels(source: ImageSource) -> int:
    """Pixels of an image as it is stored.

    Raises:
        DatasetRowError: It does not open.
    """
    from PIL import Image

    from swift_grpo_ext.models.images import decoding, describe, read_source

    with decoding(describe(source)), Image.open(BytesIO(read_source(source, _no_download))) as image:
        pixels = image.width * image.height
        image.verify()
    return pixels


def _no_download(url: str) -> BytesIO:
    raise OSError(f"{url:.80} is not downloaded")


def _local_file(run: Run, name: str) -> Path | None:
    """Where an image lies: relative to the working folder, else to ROOT_IMAGE_DIR; ours for ``file://``."""
    from swift_grpo_ext.models.images import local_path

    if len(name) > 2000:
        return None
    name = local_path(name)
    root = run.environ.get("ROOT_IMAGE_DIR")
    path = run.find(name) or (run.find(str(Path(root).expanduser() / name)) if root else None)
    return path.resolve() if path and path.is_file() else None


def images_seen(rows: Sequence[Media]) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Fewest and most images of a row and pixels of an image; None where there are none, or one is broken."""
    images = [row.get("images", ()) for row in rows]
    pixels = [image.pixels for row in images for image in row]
    if not rows or None in pixels:
        return None
    counts = [len(row) for row in images]
    known = [size for size in pixels if size]
    return (min(counts), max(counts)), (min(known, default=0), max(known, default=0))
