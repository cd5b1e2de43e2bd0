"""Pictures that a dataset holds in memory, kept as files so that the report can show them."""

from __future__ import annotations

import base64
import hashlib
import io
import os
from collections import deque
from pathlib import Path
from typing import Any

from swift.utils import get_logger

MOST_BYTES = 256 * 2**20  # of one rank's pictures in one run; those beyond that are not kept
_ENDINGS = {b"\x89PNG": ".png", b"\xff\xd8": ".jpg", b"GIF8": ".gif", b"RIFF": ".webp"}


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

        None for what is no picture, does not fit any more or cannot be written.
        """
        path = image.get("path") if isinstance(image, dict) else image
        content = image.get("bytes") if isinstance(image, dict) else None
        given = path if content is None else content
        if isinstance(path, str) and (given is path or os.path.isfile(path)) and _is_path(path):
            return path
        for known, place in self._newest:  # the completions of a group share their pictures
            if known is given:
                return place
        try:
            content = _content(given)
        except (OSError, ValueError):  # binascii's among them, and PIL's for a mode that PNG does not know
            content = None
        place = None if content is None else self._keep(content)
        self._newest.append((given, place))
        return place

    def _keep(self, content: bytes) -> str | None:
        name = hashlib.sha256(content).hexdigest()[:24]
        if name not in self._kept:
            if len(content) > self._left:
                self._say_once(f"the report shows no more than {self._most_bytes >> 20} MiB")
                return None
            ending = next((_ENDINGS[start] for start in _ENDINGS if content.startswith(start)), "")
            path = (self._folder / f"{name}{ending}").absolute()
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
            what = "not all pictures that the dataset holds in memory are kept for the report"
            get_logger().warning(f"swift-grpo-ext: {what}: {why}")
        self._said = True


def _is_path(text: str) -> bool:
    return len(text) < 4096 and not text.startswith("data:")


def _content(image: object) -> bytes | None:
    """The bytes of a picture file, of base64, or of an image of PIL; None for what is none."""
    if isinstance(image, str):
        return base64.b64decode(image.partition(",")[2] if image.startswith("data:") else image)
    if hasattr(image, "save"):
        buffer = io.BytesIO()
        image.save(buffer, format="PNG")
        return buffer.getvalue()
    return image if isinstance(image, bytes) else None
