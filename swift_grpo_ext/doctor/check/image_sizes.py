"""Sizes of the images of a run's first rows, from their headers."""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import islice

from swift_grpo_ext.doctor.check import media, rows
from swift_grpo_ext.doctor.check.arguments import NotKnown
from swift_grpo_ext.doctor.check.run import Run

ROWS = 32


@dataclass(frozen=True)
class Seen:
    """What the first rows hold, (fewest, most) each."""

    images: tuple[int, int]  # images of a row
    pixels: tuple[int, int]  # pixels of an image as it is stored


def seen(run: Run) -> Seen | None:
    """Images of the first rows of the local JSON files; None where there are none, or one cannot be read."""
    counts, pixels = list[int](), list[int]()
    for name in run.arguments.dataset or []:
        path = run.find(rows.drawn(name)[0])
        if path is None or path.suffix not in (".jsonl", ".json"):
            return None
        for _, row in islice(rows.rows_of(path), ROWS):
            if row is None:
                continue
            given = row.get("images") or row.get("image") or []
            entries = given if isinstance(given, list) else [given]
            sizes = [_pixels(run, entry) for entry in entries]
            if None in sizes:
                return None
            counts.append(len(sizes))
            pixels += [size for size in sizes if size]
    return (
        Seen((min(counts), max(counts)), (min(pixels, default=0), max(pixels, default=0))) if counts else None
    )


def _pixels(run: Run, entry: object) -> int | None:
    from PIL import Image, UnidentifiedImageError

    name = entry.get("path") if isinstance(entry, dict) else entry
    content = entry.get("bytes") if isinstance(entry, dict) else None
    source = io.BytesIO(content) if isinstance(content, bytes) else media.found(run, str(name or "-"))
    if source is None:
        return None
    try:
        with Image.open(source) as image:
            return image.width * image.height
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, NotKnown):
        return None
