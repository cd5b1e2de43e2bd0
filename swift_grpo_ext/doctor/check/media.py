"""Images, videos and audio of a row: found where ms-swift looks for them, and as many as there are tags."""

import base64
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from swift_grpo_ext.doctor.check.arguments import NotKnown
from swift_grpo_ext.doctor.check.files import Row, drawn, rows_of
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Finding, Severity

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
        for _, fault, fix in placed:
            if fault:
                yield Finding("row-image", Severity.ERROR, fault, where, fix or "fix or drop the row")
        if placed:
            row[kind] = [entry for entry, _, _ in placed]
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


def _placed(run: Run, entry: object, folder: Path, *, opens: bool) -> tuple[object, str, str]:
    """The entry with an absolute path, and what is wrong with it, with its fix."""
    name, content = _named(entry)
    if content is not None:
        return entry, _fault_of(content, "an image in the row") if opens else "", ""
    if not isinstance(name, str) or name.startswith(_NOT_LOCAL):
        return entry, "", ""
    path = found(run, name)
    if path is not None:
        placed = {**entry, "path": str(path)} if isinstance(entry, dict) else str(path)
        return placed, _fault_of(path, f"image {name}") if opens else "", ""
    if len(name) > 200 and (decoded := _base64(name)) is not None:
        return entry, _fault_of(io.BytesIO(decoded), "a base64 image") if opens else "", ""
    if len(name) < 1024 and (folder / name).is_file():
        fix = f"export ROOT_IMAGE_DIR={folder}, or start the run there, or write absolute paths"
        return entry, f"{name} lies beside the dataset, where ms-swift does not look", fix
    return entry, f"{name:.200} is not there", ""


def _named(entry: object) -> tuple[object, io.BytesIO | None]:
    """Name and content of an image, a video or a sound."""
    if not isinstance(entry, dict):
        return entry, None
    content = entry.get("bytes")
    return entry.get("path"), io.BytesIO(content) if isinstance(content, bytes) else None


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


def _base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def _fault_of(image: Path | io.BytesIO, name: str) -> str:
    """Why an image does not open; empty if it does."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(image) as opened:
            opened.verify()
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        return f"{name} does not open: {type(error).__name__}"
    return ""


@dataclass(frozen=True)
class Seen:
    """What the first rows hold, (fewest, most) each."""

    images: tuple[int, int]  # images of a row
    pixels: tuple[int, int]  # pixels of an image as it is stored


def seen(run: Run) -> Seen | None:
    """Images of the first rows of the local JSON files; None where there are none, or one cannot be read."""
    counts, pixels = list[int](), list[int]()
    for name in run.arguments.dataset or []:
        path = run.find(drawn(name)[0])
        if path is None or path.suffix not in (".jsonl", ".json"):
            return None
        for row in (row for _, row in islice(rows_of(path), _ROWS) if row is not None):
            sizes = [_pixels(run, entry) for entry in _listed(row.get("images") or row.get("image"))]
            if None in sizes:
                return None
            counts.append(len(sizes))
            pixels += filter(None, sizes)
    if not counts:
        return None
    return Seen((min(counts), max(counts)), (min(pixels, default=0), max(pixels, default=0)))


def _pixels(run: Run, entry: object) -> int | None:
    from PIL import Image, UnidentifiedImageError

    name, content = _named(entry)
    source = content or found(run, str(name or "-"))
    try:
        with Image.open(source or "") as image:
            return image.width * image.height
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, NotKnown):
        return None
