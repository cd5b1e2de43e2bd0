"""Images, videos and audio of a row: found where ms-swift looks for them, and as many as there are tags."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path

from swift_grpo_ext.doctor.check.files import Row, rows_of
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.findings import Finding, NotKnownError, Severity

_KINDS = (("images", "<image>"), ("videos", "<video>"), ("audios", "<audio>"))
_NOT_LOCAL = ("http:", "https:", "data:", "oss:", "s3:")
_ROWS = 32


def findings(run: Run, where: str, row: Row, folder: Path) -> Iterator[Finding]:
    """What is wrong with a row's media."""
    turns = [turn for turn in row.get("messages") or [] if isinstance(turn, dict)]
    text = "".join(str(turn.get("content", "")) for turn in turns)
    for kind, tag in _KINDS:
        entries, tags = _listed(row.get(kind)), text.count(tag)
        if tags and tags != len(entries):
            what = f"{tags} {tag} tags for {len(entries)} {kind}"
            yield Finding("row-tags", Severity.ERROR, what, where, "one tag for each, in order")
        placed = [_placed(run, entry, folder, opens=kind == "images") for entry in entries]
        for one in placed:
            if one.fault:
                yield Finding("row-image", Severity.ERROR, one.fault, where, one.fix or "fix or drop the row")
        if placed:
            row[kind] = [one.entry for one in placed]
    yield from _over_the_limit(run, where, len(row.get("images") or []))
    if row.get("images") and run.shape is not None and run.shape.vision is None:
        what = "the row has images, the model has no vision tower"
        yield Finding("images-for-text-model", Severity.WARNING, what, where, "a vision-language --model")


def _listed(given: object) -> list[object]:
    return given if isinstance(given, list) else [given] if given else []


def _over_the_limit(run: Run, where: str, images: int) -> Iterator[Finding]:
    """More images than the engine takes in one prompt."""
    try:
        limits = json.loads(str(run.arguments.vllm_limit_mm_per_prompt or "{}"))
    except ValueError:
        return
    most = limits.get("image") if isinstance(limits, dict) else None
    if run.arguments.use_vllm and isinstance(most, int) and images > most:
        what = f"{images} images, --vllm_limit_mm_per_prompt takes {most}"
        fix = f"""--vllm_limit_mm_per_prompt '{{"image": {images}}}'"""
        yield Finding("row-images", Severity.ERROR, what, where, fix)


@dataclass(frozen=True)
class _Placed:
    """An image, a video or a sound of a row."""

    entry: object  # with an absolute path, where it lies here
    fault: str = ""  # what is wrong with it
    fix: str = ""
    pixels: int | None = None  # of an image that was opened


def _placed(run: Run, entry: object, folder: Path, *, opens: bool) -> _Placed:
    own = isinstance(entry, dict) and entry.get("bytes") is not None
    name = entry.get("path") if isinstance(entry, dict) else entry
    if not own and (not isinstance(name, str) or name.startswith(_NOT_LOCAL)):
        return _Placed(entry)
    path = None if own else found(run, str(name))
    if path is not None:
        entry = {**entry, "path": str(path)} if isinstance(entry, dict) else str(path)
    elif not own and os.path.isfile(folder / str(name)):
        fix = f"export ROOT_IMAGE_DIR={folder}, or start the run there, or write absolute paths"
        return _Placed(entry, f"{name} lies beside the dataset, where ms-swift does not look", fix)
    elif not own and len(str(name)) <= 200:
        return _Placed(entry, f"{name} is not there")
    try:
        return _Placed(entry, pixels=_pixels(entry) if opens else None)
    except DatasetRowError as error:
        return _Placed(entry, f"{error.what}: {error.where}", error.fix)


def _pixels(source: object) -> int:
    """Pixels of an image as it is stored; a DatasetRowError says why it does not open."""
    from PIL import Image

    from swift_grpo_ext.models.images import decoding, describe, read_source

    with decoding(describe(source)), Image.open(BytesIO(read_source(source, _no_download))) as image:
        pixels = image.width * image.height
        image.verify()
    return pixels


def _no_download(url: str) -> BytesIO:
    raise OSError(f"{url:.80} is not downloaded")


def found(run: Run, name: str) -> Path | None:
    """Where an image lies.

    ms-swift's rule: relative to the working folder, else to ROOT_IMAGE_DIR; ours for ``file://``.
    """
    from swift_grpo_ext.models.images import local_path

    if len(name) > 2000:
        return None
    name = local_path(name)
    root = run.environ.get("ROOT_IMAGE_DIR")
    path = run.find(name) or (run.find(str(Path(root).expanduser() / name)) if root else None)
    return path.resolve() if path and path.is_file() else None


@dataclass(frozen=True)
class Seen:
    """What the first rows hold, (fewest, most) each."""

    images: tuple[int, int]  # images of a row
    pixels: tuple[int, int]  # pixels of an image as it is stored


def seen(run: Run) -> Seen | None:
    """Images of the first rows of the local JSON files; None where there are none, or one cannot be read."""
    counts, pixels = list[int](), list[int]()
    for name in run.arguments.dataset or []:
        path, _ = run.dataset(name)
        if path is None or path.suffix not in (".jsonl", ".json"):
            return None
        for row in (row for _, row in islice(rows_of(path), _ROWS) if row is not None):
            entries = _listed(row.get("images") or row.get("image"))
            try:
                sizes = [_placed(run, entry, Path(), opens=True).pixels for entry in entries]
            except NotKnownError:
                return None
            if None in sizes:
                return None
            counts.append(len(sizes))
            pixels += filter(None, sizes)
    if not counts:
        return None
    return Seen((min(counts), max(counts)), (min(pixels, default=0), max(pixels, default=0)))
