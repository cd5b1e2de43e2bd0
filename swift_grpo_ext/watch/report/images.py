"""Images of a dataset as thumbnails inside the report."""

from __future__ import annotations

import base64
import io
from functools import lru_cache

THUMBNAIL_SIDE = 320


@lru_cache(maxsize=512)
def thumbnail(path: str) -> bytes | None:
    """PNG of at most 320 pixels a side; None if the file is gone or no image."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            small = image.convert("RGB")
            small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    except (OSError, Image.DecompressionBombError):
        return None
    buffer = io.BytesIO()
    small.save(buffer, format="PNG")
    return buffer.getvalue()


def data_uri(png: bytes) -> str:
    """A PNG as the address of an ``<img>``."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
