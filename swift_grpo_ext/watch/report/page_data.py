"""What the page draws by itself, as JSON: curves, and completions with their images."""

from __future__ import annotations

import json
from collections.abc import Sequence

from swift_grpo_ext.watch.report.charts import Chart, thinned
from swift_grpo_ext.watch.report.completions import Group, Region
from swift_grpo_ext.watch.report.gallery import Row, distinct, groups_within
from swift_grpo_ext.watch.report.images import Album
from swift_grpo_ext.watch.report.run import Run

_LONGEST_TEXT = 4000

# Inside of a <script> nothing may look like a tag; U+2028 and U+2029 end lines in older JavaScript.
_HARMLESS = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def page_data(runs: Sequence[Run], names: Sequence[str], charts: Sequence[Chart], completions: int) -> str:
    """JSON that may stand inside of a ``<script>``.

    Args:
        runs: The runs.
        names: What to call them.
        charts: Their curves.
        completions: How many of each run to show, about.
    """
    album, prompts = Album(), dict[str, int]()
    groups = [
        _group(group, number, prompts, album)
        for number, run in enumerate(runs)
        for group in groups_within(run, completions)
    ]
    data = {
        "runs": list(names),
        "charts": [_chart(chart) for chart in charts],
        "prompts": [shortened(prompt) for prompt in prompts],
        "images": album.addresses,
        "groups": groups,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(_HARMLESS)


def shortened(text: str) -> str:
    """A text that is not longer than a page can take."""
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
        "solution": shortened(group.solution),
        "images": [album.number(path) for path in group.images],
        "on": group.image_index,
        "gold": list(map(_region, group.gold)),
        "rows": [_row(row) for row in distinct(group.samples)],
    }


def _row(row: Row) -> dict[str, object]:
    return {
        "text": shortened(row.text),
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
