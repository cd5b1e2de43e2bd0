"""What the page draws by itself, as JSON: curves, and groups of completions, each text and image once."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from swift_grpo_ext.watch.report.charts import Chart, thinned
from swift_grpo_ext.watch.report.completions import Group, Region, Sample
from swift_grpo_ext.watch.report.run import Run

THUMBNAIL_SIDE = 320
MOST_BYTES = 24 * 2**20
"""Of all thumbnails of a page together."""
_LONGEST_TEXT = 4000

# Inside of a <script> nothing may look like a tag; U+2028 and U+2029 end lines in older JavaScript.
_HARMLESS = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


@dataclass(frozen=True)
class Row:
    """One distinct completion of a group, and how many times it was sampled."""

    text: str
    count: int
    rewards: tuple[tuple[str, float | None], ...]
    advantage: float | None
    regions: tuple[Region, ...] = ()


def groups_within(run: Run, completions: int) -> list[Group]:
    """Whole groups, together of about so many completions, in order: all, or from steps spread evenly.

    The first and the last step are among them.
    """
    total = sum(len(group.samples) for group in run.groups)
    if total <= completions:
        return list(run.groups)
    by_step: dict[int, list[Group]] = {}
    for group in run.groups:
        by_step.setdefault(group.step, []).append(group)
    kept = max(2, int(len(by_step) * completions / total))
    chosen: list[Group] = []
    for group in (group for step in _spread(sorted(by_step), kept) for group in by_step[step]):
        if completions > 0:
            chosen.append(group)
            completions -= len(group.samples)
    return chosen


def _spread(steps: Sequence[int], count: int) -> Iterator[int]:
    """So many of the steps, at least 2, evenly, the first and the last among them."""
    if len(steps) <= count:
        yield from steps
    else:
        yield from (steps[round(i * (len(steps) - 1) / (count - 1))] for i in range(count))


def distinct(samples: Sequence[Sample]) -> list[Row]:
    """The different completions of a group, best advantage first."""
    merged: dict[tuple[object, ...], Row] = {}
    for sample in samples:
        rewards = tuple(sample.rewards.items())
        key = (sample.text, rewards, sample.advantage)
        count = merged[key].count + 1 if key in merged else 1
        merged[key] = Row(sample.text, count, rewards, sample.advantage, sample.regions)
    return sorted(merged.values(), key=lambda row: (-(row.advantage or 0.0), -row.count))


@lru_cache(maxsize=512)
def thumbnail(path: str) -> bytes | None:
    """PNG of at most 320 pixels a side, or JPEG if that is smaller; None if the file is gone or no image."""
    from PIL import Image

    def encoded(kind: str) -> bytes:
        buffer = io.BytesIO()
        small.save(buffer, format=kind, quality=82)
        return buffer.getvalue()

    try:
        with Image.open(path) as image:
            small = image.convert("RGB")
            small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    return min(map(encoded, ("PNG", "JPEG")), key=len)


def data_uri(image: bytes) -> str:
    """A PNG or JPEG as the address of an ``<img>``."""
    kind = "jpeg" if image.startswith(b"\xff\xd8") else "png"
    return f"data:image/{kind};base64,{base64.b64encode(image).decode('ascii')}"


class Album:
    """The images of a page: each is kept once, however many groups show it."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self._numbers: dict[bytes, int] = {}
        self._left = MOST_BYTES

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


def page_data(runs: Sequence[Run], names: Sequence[str], charts: Sequence[Chart], completions: int) -> str:
    """JSON that may stand inside of a ``<script>``; about so many completions of each run."""
    album, prompts = Album(), dict[str, int]()
    groups = [
        _group(group, number, prompts, album)
        for number, run in enumerate(runs)
        for group in groups_within(run, completions)
    ]
    data = {
        "runs": list(names),
        "charts": [_chart(chart) for chart in charts],
        "prompts": list(map(_shortened, prompts)),
        "images": album.addresses,
        "groups": groups,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(_HARMLESS)


def _shortened(text: str) -> str:
    hidden = len(text) - _LONGEST_TEXT
    return text if hidden <= 0 else f"{text[:_LONGEST_TEXT]} … ({hidden:,} more characters)"


def _chart(chart: Chart) -> dict[str, object]:
    return {
        "title": chart.title,
        "percent": chart.percent,
        "stacked": chart.stacked,
        "exact": chart.exact,
        "lines": [
            {
                "label": line.label,
                "run": line.run,
                "steps": line.series.steps,
                "values": list(map(_rounded, line.series.values)),
                "low": list(map(_rounded, line.low)),
                "high": list(map(_rounded, line.high)),
            }
            for line in map(thinned, chart.lines)
        ],
    }


def _group(group: Group, run: int, prompts: dict[str, int], album: Album) -> dict[str, object]:
    return {
        "run": run,
        "step": group.step,
        "prompt": prompts.setdefault(group.prompt, len(prompts)),
        "solution": _shortened(group.solution),
        "images": [album.number(path) for path in group.images],
        "on": group.image_index,
        "gold": list(map(_region, group.gold)),
        "rows": [_row(row) for row in distinct(group.samples)],
    }


def _row(row: Row) -> dict[str, object]:
    return {
        "text": _shortened(row.text),
        "count": row.count,
        "rewards": {name: None if value is None else _rounded(value) for name, value in row.rewards},
        "advantage": None if row.advantage is None else _rounded(row.advantage),
        "regions": list(map(_region, row.regions)),
    }


def _region(region: Region) -> dict[str, object]:
    return {"at": list(map(_rounded, region.at)), "label": region.label[:80]}


def _rounded(value: float) -> float | None:
    """Five digits are more than a screen shows; JSON knows neither NaN nor infinity."""
    short = float(f"{value:.5g}")
    return short if abs(short) < float("inf") else None
