"""Images, videos and audio of a row: found where the host looks for them, and as many as there are tags."""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Finding, Severity

_KINDS = (("images", "<image>"), ("videos", "<video>"), ("audios", "<audio>"))
_NOT_LOCAL = ("http:", "https:", "data:", "oss:", "s3:")


def findings(run: Run, where: str, row: dict[str, Any], folder: Path) -> Iterator[Finding]:
    """What is wrong with a row's media."""
    text = "".join(
        str(turn.get("content", "")) for turn in row.get("messages") or [] if isinstance(turn, dict)
    )
    for kind, tag in _KINDS:
        given = row.get(kind) or []
        entries = given if isinstance(given, list) else [given]
        tags = text.count(tag)
        if tags and tags != len(entries):
            what = f"{tags} {tag} tags for {len(entries)} {kind}"
            yield Finding("row-tags", Severity.ERROR, what, where, "one tag for each, in order")
        placed = []
        for entry in entries:
            entry, fault = _placed(run, entry, folder, opens=kind == "images")
            placed.append(entry)
            if fault:
                fix = fault[1] or "fix or drop the row"
                yield Finding("row-image", Severity.ERROR, fault[0], where, fix)
        if placed:
            row[kind] = placed
    yield from _over_the_limit(run, where, len(row.get("images") or []))
    if row.get("images") and run.shape is not None and run.shape.vision is None:
        what = "the row has images, the model has no vision tower"
        yield Finding("images-for-text-model", Severity.WARNING, what, where, "a vision-language --model")


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


def _placed(run: Run, entry: object, folder: Path, *, opens: bool) -> tuple[object, tuple[str, str] | None]:
    """The entry with an absolute path, and what is wrong with it (fault, fix)."""
    name = entry.get("path") if isinstance(entry, dict) else entry
    content = entry.get("bytes") if isinstance(entry, dict) else None
    if isinstance(content, bytes):
        return entry, _fault_of(io.BytesIO(content), "an image in the row") if opens else None
    if not isinstance(name, str) or name.startswith(_NOT_LOCAL):
        return entry, None
    path = found(run, name)
    if path is not None:
        placed = {**entry, "path": str(path)} if isinstance(entry, dict) else str(path)
        return placed, _fault_of(path, f"image {name}") if opens else None
    if len(name) > 200 and _base64(name) is not None:
        return entry, _fault_of(io.BytesIO(_base64(name) or b""), "a base64 image") if opens else None
    beside = folder / name
    if len(name) < 1024 and beside.is_file():
        fix = f"export ROOT_IMAGE_DIR={folder}, or start the run there, or write absolute paths"
        return entry, (f"{name} lies beside the dataset, where ms-swift does not look", fix)
    return entry, (f"{name:.200} is not there", "")


def found(run: Run, name: str) -> Path | None:
    """Where an image lies. The host's rule: relative to the working folder, else to ROOT_IMAGE_DIR; ours for ``file://``."""
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
    except (binascii.Error, ValueError):
        return None


def _fault_of(image: Path | io.BytesIO, name: str) -> tuple[str, str] | None:
    """Why an image does not open; None if it does."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(image) as opened:
            opened.verify()
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        return f"{name} does not open: {type(error).__name__}", ""
    return None
