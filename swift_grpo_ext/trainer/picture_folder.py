"""Pictures that a dataset holds in memory, kept as files so that the report can show them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import os
from collections import deque
from pathlib import Path
from typing import Any

from swift.utils import get_logger

MOST_BYTES = 256 * 2**20
"""Of one rank's pictures in one run; those beyond that are not kept."""

_LONGEST_PATH = 4096


class PictureFolder:
    """Writes each picture once, under a name made of its content."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = self._left = most_bytes
        self._kept: dict[str, str] = {}
        self._said = False
        self._newest: deque[tuple[Any, str | None]] = deque(maxlen=16)

    def path_of(self, image: object) -> str | None:
        """Where an image of a row lies: its own path or address, else that of the copy kept here.

        It may be ``{"path": ..., "bytes": ...}``, a path, an address, base64, or an image of PIL. None for
        what is no picture, does not fit any more or cannot be written.
        """
        path = image.get("path") if isinstance(image, dict) else image
        content = image.get("bytes") if isinstance(image, dict) else None
        if isinstance(path, str) and _is_path(path) and (content is None or os.path.isfile(path)):
            return path
        given = path if content is None else content
        for known, place in self._newest:  # the completions of a group share their pictures
            if known is given:
                return place
        content = _content(given)
        place = None if content is None else self._keep(content)
        self._newest.append((given, place))
        return place

    def _keep(self, content: bytes) -> str | None:
        name = hashlib.sha256(content).hexdigest()[:24]
        if name not in self._kept:
            if len(content) > self._left:
                self._say_once(f"the report shows no more than {self._most_bytes >> 20} MiB")
                return None
            path = (self._folder / f"{name}{_ending(content)}").absolute()
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except OSError as problem:
                self._left = 0
                self._say_once(str(problem))
                return None
            self._left -= len(content)
            self._kept[name] = str(path)
        return self._kept[name]

    def _say_once(self, why: str) -> None:
        if not self._said:
            self._said = True
            get_logger().warning(
                "swift-grpo-ext: not all pictures that the dataset holds in memory are kept for the report: "
                f"{why}"
            )


def _is_path(text: str) -> bool:
    return len(text) < _LONGEST_PATH and not text.startswith("data:")


def _content(image: object) -> bytes | None:
    """The bytes of a picture file; None for what is none."""
    if isinstance(image, bytes):
        return image
    if isinstance(image, str):
        try:
            return base64.b64decode(image.partition(",")[2] if image.startswith("data:") else image)
        except (binascii.Error, ValueError):
            return None
    if hasattr(image, "save"):
        buffer = io.BytesIO()
        try:
            image.save(buffer, format="PNG")
        except (OSError, ValueError):  # a mode that PNG does not know
            return None
        return buffer.getvalue()
    return None


def _ending(content: bytes) -> str:
    starts = {b"\x89PNG": ".png", b"\xff\xd8": ".jpg", b"GIF8": ".gif", b"RIFF": ".webp"}
    return next((ending for start, ending in starts.items() if content.startswith(start)), "")
