"""What the page draws by itself, as JSON: curves, and groups of completions, each text and image once."""

import base64
import io
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from swift_grpo_ext.watch.report.charts import Chart, Line, thinned
from swift_grpo_ext.watch.report.run import Group, Run, Sample

THUMBNAIL_SIDE = 320
MOST_BYTES = 24 * 2**20  # of all thumbnails of a page together
_LONGEST_TEXT = 4000

# Inside of a <script> nothing may look like a tag; U+2028 and U+2029 end lines in older JavaScript.
_HARMLESS = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def groups_within(run: Run, completions: int) -> list[Group]:
    """Whole groups of about so many completions, from steps spread evenly from first to last."""
    total = sum(len(group.samples) for group in run.groups)
    if total <= completions:
        return list(run.groups)
    steps = sorted({group.step for group in run.groups})
    kept = min(len(steps), max(2, int(len(steps) * completions / total)))
    wanted = {steps[round(i * (len(steps) - 1) / max(1, kept - 1))] for i in range(kept)}
    chosen: list[Group] = []
    for group in sorted((group for group in run.groups if group.step in wanted), key=lambda one: one.step):
        if completions > 0:
            chosen.append(group)
            completions -= len(group.samples)
    return chosen


def distinct(samples: Sequence[Sample]) -> list[Sample]:
    """The different completions of a group, best advantage first."""
    merged: dict[tuple[object, ...], Sample] = {}
    for sample in samples:
        key = (sample.text, *sample.rewards.items(), sample.advantage)
        count = merged[key].count + 1 if key in merged else 1
        merged[key] = replace(sample, count=count)
    return sorted(merged.values(), key=lambda one: (-(one.advantage or 0.0), -one.count))


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


def _image(path: str, kept: dict[bytes, int]) -> int | None:
    """Number of an image among those of the page, each kept once; None if gone, no image, or one too many."""
    small = thumbnail(path)
    if small is None or (small not in kept and sum(map(len, kept)) + len(small) > MOST_BYTES):
        return None
    return kept.setdefault(small, len(kept))


def page_data(runs: Sequence[Run], names: Sequence[str], charts: Sequence[Chart], completions: int) -> str:
    """JSON that may stand inside of a ``<script>``; about so many completions of each run."""
    images, prompts = dict[bytes, int](), dict[str, int]()
    groups = [
        _group(group, number, prompts, images)
        for number, run in enumerate(runs)
        for group in groups_within(run, completions)
    ]
    data = {
        "runs": list(names),
        "charts": [vars(chart) | {"lines": list(map(_line, chart.lines))} for chart in charts],
        "prompts": list(prompts),
        "groups": groups,
    }
    data = {name: _shown(value) for name, value in data.items()} | {"images": list(map(data_uri, images))}
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(_HARMLESS)


def _line(line: Line) -> dict[str, object]:
    line = thinned(line)
    points = {"steps": list(line.series), "values": list(line.series.values())}
    return {"label": line.label, "run": line.run, "low": line.low, "high": line.high, **points}


def _group(group: Group, run: int, prompts: dict[str, int], images: dict[bytes, int]) -> dict[str, object]:
    return {
        "run": run,
        "step": group.step,
        "prompt": prompts.setdefault(group.prompt, len(prompts)),
        "solution": group.solution,
        "images": [_image(path, images) for path in group.images],
        "on": group.image_index,
        "gold": group.gold,
        "rows": list(map(vars, distinct(group.samples))),
    }


def _shown(value: object) -> object:
    """Data as a page takes it: five digits are more than it shows; JSON knows neither NaN nor infinity."""
    if isinstance(value, str):
        hidden = len(value) - _LONGEST_TEXT
        return value if hidden <= 0 else f"{value[:_LONGEST_TEXT]} … ({hidden:,} more characters)"
    if isinstance(value, float):
        short = float(f"{value:.5g}")
        return short if math.isfinite(short) else None
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, (list, tuple)) else value
