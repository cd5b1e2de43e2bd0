"""Images of a dataset as thumbnails inside the report, each once."""

from __future__ import annotations

import base64
import io
from functools import lru_cache

THUMBNAIL_SIDE = 320
MOST_BYTES = 24 * 2**20
"""Of all thumbnails of a page together."""


@lru_cache(maxsize=512)
def thumbnail(path: str) -> bytes | None:
    """PNG of at most 320 pixels a side, or JPEG if that is smaller; None if the file is gone or no image."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            small = image.convert("RGB")
            small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    return min(_encoded(small, "PNG"), _encoded(small, "JPEG"), key=len)


def data_uri(image: bytes) -> str:
    """A PNG or JPEG as the address of an ``<img>``."""
    kind = "jpeg" if image.startswith(b"\xff\xd8") else "png"
    return f"data:image/{kind};base64,{base64.b64encode(image).decode('ascii')}"


class Album:
    """The images of a page: each is kept once, however many groups show it.

    Args:
        most_bytes: Of all thumbnails together; images beyond that are left out.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.addresses: list[str] = []
        self._numbers: dict[bytes, int] = {}
        self._left = most_bytes

    def number(self, path: str) -> int | None:
        """Number of an image in `addresses`; None if it is gone, no image, or one too many."""
        small = thumbnail(path)
        if small is None:
            return None
        if small not in self._numbers:
            if len(small) > self._left:
                return None
            self._left -= len(small)
            self._numbers[small] = len(self.addresses)
            self.addresses.append(data_uri(small))
        return self._numbers[small]


def _encoded(image: object, kind: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, quality=82)  # type: ignore[attr-defined]
    return buffer.getvalue()
