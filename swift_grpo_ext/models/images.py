"""From whatever a dataset row calls an image to RGB pixels, or an error that names it. Needs Pillow only."""

import base64
import binascii
import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, TypeAlias
from urllib.parse import unquote

from PIL import Image, UnidentifiedImageError
from PIL.Image import DecompressionBombError as TooLarge

from swift_grpo_ext.errors import DatasetRowError

# What Pillow raises for files that are not an image, cut off, damaged or larger than its limit.
UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error, TooLarge)
ImageSource: TypeAlias = (
    str | bytes | bytearray | memoryview | os.PathLike[str] | Image.Image | dict[str, Any] | None
)
"""What a dataset row may call an image; anything else that stands there is refused with its name."""
_SHOWN = 120
_LONGEST_PATH = 2000  # characters; the host takes longer text for base64
_SHORTEST_BASE64 = 64  # characters; no image file is smaller
_GREY_LIMITS = (255, 4095, 65535)  # largest values of 8, 12 and 16 bits


def read_source(source: ImageSource, fetch: Callable[[str], BytesIO]) -> bytes:
    """Bytes of an image given as path, URL, base64, ``data:`` URI, bytes or a dict.

    Raises:
        DatasetRowError: The value is something else or empty, or its file or URL cannot be read.
    """
    where = describe(source)
    source = _plain(source)
    if not isinstance(source, (str, bytes)) or not source:
        known = isinstance(source, (str, bytes, type(None)))
        what = "image is empty" if known else "not an image"
        raise DatasetRowError(what, where=where, fix="give a path, a URL, base64, bytes or a Pillow image")
    try:
        data = source if isinstance(source, bytes) else _read_text(source.strip(), fetch)
    except FileNotFoundError:
        fix = "check the path, or set ROOT_IMAGE_DIR"
        raise DatasetRowError("image file not found", where=where, fix=fix) from None
    except IsADirectoryError:
        fix = "name an image file in it"
        raise DatasetRowError("image path is a folder", where=where, fix=fix) from None
    except (OSError, binascii.Error) as error:
        raise DatasetRowError(f"image cannot be loaded: {one_line(error)}", where=where) from None
    if not data:
        raise DatasetRowError("image file is empty (0 bytes)", where=where)
    return data


def decode(data: bytes, where: str) -> tuple[Image.Image, int]:
    """Pixels of an encoded image in RGB, and its number of frames: of an animation, the first one counts."""
    with decoding(where), Image.open(BytesIO(data)) as image:
        image.load()
        rgb = to_rgb(image, where)
        # An image of a file with several pages is of no use once the file is closed.
        return rgb.copy() if rgb is image else rgb, int(getattr(image, "n_frames", 1))


@contextmanager
def decoding(where: str) -> Iterator[None]:
    """Turn whatever Pillow raises for a broken image into an error that names it.

    Raises:
        DatasetRowError: Pillow cannot read the image.
    """
    try:
        yield
    except UNREADABLE as error:
        raise DatasetRowError(f"image cannot be decoded: {one_line(error)}", where=where) from None


def to_rgb(image: Image.Image, where: str = "") -> Image.Image:
    """Convert to RGB without losing the picture.

    Pillow drops the alpha channel, and clips 16-bit values to white. Transparency is composed over white,
    as by ``qwen_vl_utils``, and 16 bits are scaled to 8.

    Raises:
        DatasetRowError: The range of its values is not known.
    """
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I;16") or image.mode == "I":
        return _from_16_bit(image, where)
    if image.mode == "F":
        raise DatasetRowError("pixels are 32-bit floats of unknown range", where=where, fix="save as 8 bit")
    if "A" in image.mode or "a" in image.mode or "transparency" in image.info:
        layered = image.convert("RGBA")
        background = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(background, layered).convert("RGB")
    return image.convert("RGB")


def content_key(data: bytes) -> str:
    """Name of a content: equal bytes, equal name."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def pixel_key(image: Image.Image) -> str:
    """Name of decoded pixels: with their palette, and with the colour that stands for transparency."""
    palette = image.palette.getdata() if image.palette else ""
    head = f"{image.mode}{image.size}{palette}{image.info.get('transparency', '')}".encode()
    return content_key(head + image.tobytes())


def source_key(source: ImageSource) -> str:
    """Name of a source without reading it: for files, path, size and time of the last change."""
    source = _plain(source)
    if isinstance(source, Image.Image):
        return pixel_key(source)
    if isinstance(source, bytes):
        return content_key(source)
    text = str(source or "").strip()
    try:
        path = find_file(text)
        status = os.stat(path)
    except (OSError, ValueError):
        return content_key(text.encode())
    return content_key(f"{path}\0{status.st_size}\0{status.st_mtime_ns}".encode())


def describe(source: ImageSource) -> str:
    """Name of a source in an error message: its path or URL, or its kind and size."""
    if isinstance(source, dict):
        known = source.get("path") or source.get("bytes")
        source = f"a dict of {', '.join(map(str, source))}" if known is None else known
    if isinstance(source, Image.Image):
        return f"{source.mode} image of {source.width}x{source.height} pixels"
    if isinstance(source, bytes):
        return f"{len(source)} bytes in the row"
    if not isinstance(source, (str, os.PathLike, type(None))):
        return f"{type(source).__name__} in the row"
    text = str(source)
    looks_encoded = text.startswith("data:") or (len(text) > 256 and not text.startswith("http"))
    return f"{len(text)} characters of base64 in the row" if looks_encoded else text[:_SHOWN]


def _plain(source: ImageSource) -> Any:
    """A dict's bytes or path, a path object's text, a byte array's bytes; everything else as it is."""
    if isinstance(source, dict):
        source = source.get("bytes") or source.get("path")
    if isinstance(source, os.PathLike):
        return os.fspath(source)
    return bytes(source) if isinstance(source, (bytearray, memoryview)) else source


def _from_16_bit(image: Image.Image, where: str) -> Image.Image:
    """Grey of 16 bits as 8; pixels that use only 8 or 12 of them would else be black, all or nearly.

    Raises:
        DatasetRowError: Values are outside 0 to 65535.
    """
    low, high = image.getextrema()
    if low < 0 or high > 65535:
        raise DatasetRowError(f"pixel values {low} to {high} are not 16-bit grey", where=where)
    most = next(limit for limit in _GREY_LIMITS if high <= limit)
    return image.convert("I").point(lambda value: value * (255 / most)).convert("L").convert("RGB")


def find_file(text: str) -> str:
    """Absolute path of a file, looked up as it is, then under ``ROOT_IMAGE_DIR``.

    Raises:
        FileNotFoundError: The file does not exist.
        IsADirectoryError: There is a folder of that name.
    """
    text = local_path(text)
    is_path = 0 < len(text) <= _LONGEST_PATH and not text.startswith(("http://", "https://", "data:"))
    roots = ("", os.environ.get("ROOT_IMAGE_DIR", "")) if is_path else ()
    paths = [os.path.abspath(os.path.join(root, os.path.expanduser(text))) for root in roots]
    for path in paths:
        if os.path.isfile(path):
            return path
    error = IsADirectoryError if any(map(os.path.isdir, paths)) else FileNotFoundError
    raise error(text[:_SHOWN])


def local_path(text: str) -> str:
    """The path in a ``file://`` URL, which Qwen's examples use and ms-swift does not know; or the text."""
    if not text.startswith("file://"):
        return text
    path = text.removeprefix("file://").removeprefix("localhost")
    return path if os.path.isfile(path) else unquote(path)


def _read_text(text: str, fetch: Callable[[str], BytesIO]) -> bytes:
    if text.startswith(("http://", "https://")):
        return fetch(text).getvalue()
    if text.startswith("data:"):
        return base64.b64decode("".join(text.partition(",")[2].split()), validate=True)
    try:
        with open(find_file(text), "rb") as file:
            return file.read()
    except FileNotFoundError:
        if len(text) < _SHORTEST_BASE64:
            raise
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        raise FileNotFoundError(text[:_SHOWN]) from None


def one_line(error: BaseException, most: int = _SHOWN) -> str:
    """Text of an exception, in a line of at most ``most`` characters."""
    if isinstance(error, UnidentifiedImageError):  # its own text is the address of a buffer
        return "not an image, or of a kind that Pillow does not read"
    return " ".join(f"{type(error).__name__}: {error}".split())[:most]
