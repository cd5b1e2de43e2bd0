"""An image's way from a dataset row to the tensors of the model, each station once per content."""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import torch
from PIL import ExifTags, Image
from swift.template.vision_utils import load_file
from swift.utils import get_logger

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.models import images

logger = get_logger()
Options = Mapping[str, Any]
Size = tuple[int, int]
T = TypeVar("T")
_KEEP_FAILURE = 60.0  # seconds
_BAD_SIZE = (ValueError, AssertionError, OSError, ZeroDivisionError, MemoryError)


@dataclass
class StoreCounts:
    """Results computed so far, and taken from the store or from a thread that was computing them."""

    made: int = 0
    reused: int = 0
    held_bytes: int = 0


class PreparedImageCache:
    """Least-recently-used memo of expensive results, at most `limit` bytes; larger ones are not held.

    If several threads ask for one key, the first computes it. A row that failed keeps failing for a minute:
    ms-swift tries each three times, and a URL without network takes its time to fail.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.counts = StoreCounts()
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._making: WeakValueDictionary[Hashable, threading.Lock] = WeakValueDictionary()
        self._failed: dict[Hashable, tuple[DatasetRowError, float]] = {}

    def get(self, key: Hashable, make: Callable[[], T], size_of: Callable[[T], int]) -> T:
        """The result for a key, which names content and options; computed if it is not held.

        Raises:
            DatasetRowError: Computing it failed, now or less than a minute ago.
        """
        with self._lock:
            of_key = self._making.setdefault(key, threading.Lock())
        with of_key:
            with self._lock:
                if key in self._held:
                    self._held.move_to_end(key)
                    self.counts.reused += 1
                    return self._held[key][0]
                while self._failed and time.monotonic() >= next(iter(self._failed.values()))[1]:
                    del self._failed[next(iter(self._failed))]
                if key in self._failed:
                    raise self._failed[key][0].fresh()
            try:
                result = make()
            except DatasetRowError as error:
                with self._lock:  # without its traceback, which would hold the bytes of the broken file
                    self._failed[key] = (error.fresh(), time.monotonic() + _KEEP_FAILURE)
                raise
            with self._lock:
                self.counts.made += 1
                self._hold(key, result, size_of(result))
            return result

    def bound(self, limit: int) -> None:
        """Hold at most so many bytes from now on."""
        with self._lock:
            self.limit = limit
            self._let_go()

    def _hold(self, key: Hashable, result: object, size: int) -> None:
        if size > self.limit:
            return
        self._held[key] = (result, size)
        self.counts.held_bytes += size
        self._let_go()

    def _let_go(self) -> None:
        """Evict the least recently used, until the others are within the limit."""
        while self.counts.held_bytes > self.limit:
            _, (_, freed) = self._held.popitem(last=False)
            self.counts.held_bytes -= freed

    def __reduce__(self) -> tuple[object, ...]:
        """A copy in another process starts empty: ms-swift pickles templates into workers."""
        return PreparedImageCache, (self.limit,)

    def __deepcopy__(self, memo: dict[int, object]) -> PreparedImageCache:
        """Copies of a template share one store."""
        return self


@dataclass(frozen=True)
class Origin:
    """Where an image came from: width and height of the file in pixels, and its path, URL or kind."""

    size: Size
    where: str


@dataclass(frozen=True)
class PreparedImage:
    """One image as the model takes it; sizes are width and height in pixels."""

    original: Size  # of the file
    resized: Size  # that the vision tower sees
    tensors: Mapping[str, torch.Tensor]  # inputs; the first dimension runs over patches, tiles or images
    token_ids: list[int]  # a placeholder for each feature, with any indicators

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


@dataclass(frozen=True)
class ImagePipeline:
    """Loads, resizes and prepares images; whatever was done to a content before comes from the store."""

    store: PreparedImageCache
    resize_image: Callable[[Image.Image, Options], Image.Image]
    prepare_image: Callable[[Image.Image], tuple[dict[str, torch.Tensor], Size, list[int]]]

    def load(self, source: images.ImageSource) -> Image.Image:
        """Decoded pixels in RGB of any source that `images.read_source` takes, or a Pillow image."""
        where = images.describe(source)
        with images.decoding(where):  # a Pillow image that was opened, not yet read
            key = images.source_key(source)
        return self.store.get(("decoded", key), lambda: _decode(source, key, where), _pixel_bytes)

    def resize(self, image: Image.Image, options: Options) -> Image.Image:
        """A loaded image in its final size; a DatasetRowError if that cannot be brought into the limits."""
        of_image, origin = _known_as(image)
        key = f"{of_image}|{sorted(options.items())}"

        def make() -> Image.Image:
            try:
                return _named(self.resize_image(image, options), key, origin)
            except _BAD_SIZE as error:
                problem = f"image of {origin.size[0]}x{origin.size[1]} pixels cannot be resized: {error}"
                raise DatasetRowError(problem, where=origin.where) from None

        return self.store.get(("resized", key), make, _pixel_bytes)

    def prepare(self, image: Image.Image) -> PreparedImage:
        """Tensors and tokens of a resized image."""
        key, origin = _known_as(image)

        def make() -> PreparedImage:
            # The host encodes in inference mode, whose tensors autograd cannot save.
            with torch.inference_mode(False), torch.no_grad():
                tensors, seen, token_ids = self.prepare_image(image)
            return PreparedImage(origin.size, seen, tensors, token_ids)

        return self.store.get(("prepared", key), make, lambda prepared: prepared.nbytes)

    def prepare_all(self, sources: Iterable[images.ImageSource], options: Options) -> list[PreparedImage]:
        """The images of a row as the model takes them."""
        return [self.prepare(self.resize(self.load(source), options)) for source in sources]


def _decode(source: images.ImageSource, key: str, where: str) -> Image.Image:
    if isinstance(source, Image.Image):
        with images.decoding(where):
            rgb = images.to_rgb(source, where)
        decoded = rgb.copy() if rgb is source else rgb  # the caller may draw on it
    else:
        decoded, frames = images.decode(images.read_source(source, load_file), where)
        if frames > 1:
            logger.warning_once(f"swift-grpo-ext: {where} has {frames} frames; the first is used")
        if _has_orientation(decoded):
            logger.warning_once(
                "swift-grpo-ext: pictures have an EXIF orientation, which nobody applies: boxes that were "
                "drawn on the upright picture miss -> turn the files once: mogrify -auto-orient *.jpg"
            )
    return _named(decoded, key, Origin(decoded.size, where))


def _has_orientation(image: Image.Image) -> bool:
    with suppress(*images.UNREADABLE):  # a broken tag; the pixels are whole
        return image.getexif().get(ExifTags.Base.Orientation, 1) != 1
    return False


# Key and origin of the images that live, by id: Pillow's are not hashable, so no weak table holds them.
_known: dict[int, tuple[str, Origin]] = {}


def _known_as(image: Image.Image) -> tuple[str, Origin]:
    unknown = Origin(image.size, images.describe(image))
    return _known.get(id(image)) or (images.pixel_key(image), unknown)


def _named(image: Image.Image, key: str, origin: Origin) -> Image.Image:
    """The image, known by its key and its origin; a copy if it is known by another key."""
    named = image.copy() if id(image) in _known else image
    _known[id(named)] = (key, origin)
    weakref.finalize(named, _known.pop, id(named)).atexit = False
    return named


def _pixel_bytes(image: Image.Image) -> int:
    """Bytes that Pillow holds: it stores RGB as four bands."""
    bands = len(image.getbands())
    return image.width * image.height * (1 if bands == 1 else 4)
