"""What the page draws by itself, as JSON: curves, and groups of completions, each text and image once."""

import base64
import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from swift_grpo_ext.watch.held_out import TOTAL
from swift_grpo_ext.watch.report.run import Group, Run, Sample

THUMBNAIL_SIDE = 320
MOST_BYTES = 24 * 2**20  # of all thumbnails of a page together
MOST_POINTS = 1500  # of a line
_LONGEST_TEXT = 4000

# Inside of a <script> nothing may look like a tag; U+2028 and U+2029 end lines in older JavaScript.
_HARMLESS = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


@dataclass(frozen=True)
class Line:
    """Finite values of one figure of a run; `low` and `high` edge a band around them, or are empty."""

    label: str
    run: int
    steps: tuple[int, ...]
    values: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Chart:
    """Curves in one frame."""

    title: str  # with the unit if it has one
    lines: tuple[Line, ...] = ()
    percent: bool = False  # the figures are shares of 1
    stacked: bool = False  # the lines lie on top of each other
    exact: bool = False  # set, not sampled: a running mean of them would show what never was
    place: str = "curves"  # element of the page that it is drawn in

    @property
    def is_flat(self) -> bool:
        """Whether no line of it ever changes."""
        return all(max(line.values) == min(line.values) for line in self.lines)


ENGINE = "watch/engine_ratio"
_FIGURES = {
    "reward_std": Chart("standard deviation of the reward inside a group"),
    "frac_reward_zero_std": Chart("groups whose rewards are all equal", percent=True),
    "reward_coverage": Chart("completions that got a reward", percent=True),
    "kl": Chart("KL to the reference model (nats a token)"),
    "grad_norm": Chart("gradient norm before clipping"),
    "watch/moved": Chart("parameters that moved", percent=True),
    "completions/mean_length": Chart("completion length (tokens): mean and range"),
    "completions/clipped_ratio": Chart("completions cut at the length limit", percent=True),
    "clip_ratio/region_mean": Chart("tokens whose ratio was clipped", percent=True),
    "entropy/mean": Chart("entropy (nats a token)"),
    "watch/entropy": Chart("entropy at the sampled tokens (nats a token)"),
    ENGINE: Chart("mean of exp|d|, d the difference of a token's log-probs", exact=True, place="engine"),
    "loss": Chart("loss"),
    "learning_rate": Chart("learning rate", exact=True),
    "step_time": Chart("step time (seconds)"),
}
# What edges the band around a figure: its least and most, or its standard deviation.
_EDGES = {"completions/mean_length": ("completions/min_length", "completions/max_length")}


def charts(runs: Sequence[Run]) -> list[Chart]:
    """Charts of the figures that at least one of the runs has logged."""
    means = {f"rewards/{name}/mean": name for run in runs for name in run.reward_names()}
    edges = _EDGES | {mean: (mean.removesuffix("mean") + "std",) for mean in means}
    each = {mean: Chart(f"{name}: mean ± standard deviation") for mean, name in means.items()}
    total = [*_lines(runs, "reward", "total" if len(runs) == 1 else "")]
    if len(runs) == 1 and len(means) > 1:
        total += [line for mean, name in means.items() for line in _lines(runs, mean, name)]
    drawn = [
        Chart("held-out reward: mean and 95 % interval", tuple(_held_out(runs)), place="rewards"),
        Chart("reward", tuple(total), place="rewards"),
    ]
    for name, chart in (each | _FIGURES).items():
        drawn.append(replace(chart, lines=tuple(_lines(runs, name, edges=edges.get(name, ())))))
    drawn += [_phases(run, number, len(runs)) for number, run in enumerate(runs)]
    return [chart for chart in drawn if chart.lines]


def _held_out(runs: Sequence[Run]) -> Iterator[Line]:
    """The mean over held-out rows in each run that was evaluated, with its interval; of one each reward."""
    for number, run in enumerate(runs):
        names = list(dict.fromkeys(name for evaluation in run.held_out for name in evaluation.scores))
        names = names if len(runs) == 1 and len(names) > 2 else [TOTAL]
        for name in names:
            scores = {evaluation.step: evaluation.interval(name) for evaluation in run.held_out}
            known = {step: score for step, score in scores.items() if score and math.isfinite(score.low)}
            if known:
                label = "" if len(names) == 1 else "total" if name == TOTAL else name
                bands = zip(*((score.mean, score.low, score.high) for score in known.values()), strict=True)
                yield Line(label, number, tuple(known), *bands)


def _lines(runs: Sequence[Run], name: str, label: str = "", edges: Sequence[str] = ()) -> Iterator[Line]:
    """The figure in each run that has it, with a band where its edges were logged at the same steps."""
    for number, run in enumerate(runs):
        series = run.finite(name)
        ends = [run.finite(edge) for edge in edges]
        same = all(end.keys() == series.keys() for end in ends)
        bands = [tuple(end.values()) for end in ends if same]
        values = tuple(series.values())
        if len(bands) == 1:
            pairs = list(zip(values, *bands, strict=True))
            bands = [tuple(mean + sign * spread for mean, spread in pairs) for sign in (-1, 1)]
        if series:
            yield Line(label, number, tuple(series), values, *bands)


def _phases(run: Run, number: int, of: int) -> Chart:
    """Where the time of each step went; a phase that a step did not have took no time."""
    steps = tuple(record["step"] for record in run.records)
    names = dict.fromkeys(name for record in run.records for name in record if name.startswith("seconds/"))
    known = {name.removeprefix("seconds/"): run.finite(name) for name in names if name != "seconds/start"}
    lines = tuple(
        Line(label.replace("_", " "), number, steps, tuple(spent.get(step, 0.0) for step in steps))
        for label, spent in known.items()
        if any(spent.values())
    )
    title = "seconds of each step by phase" + (f", run {number + 1}" if of > 1 else "")
    return Chart(title, lines, stacked=True)


def thinned(line: Line, most: int = MOST_POINTS) -> Line:
    """The line with at most so many points: each the mean over as many neighbours."""
    size = -(-len(line.steps) // most)
    if size <= 1:
        return line
    values, low, high = (
        tuple(sum(some[end - size : end]) / size for end in range(size, len(some) + 1, size))
        for some in (line.values, line.low, line.high)
    )
    return Line(line.label, line.run, line.steps[size - 1 :: size], values, low, high)


def groups_within(run: Run, completions: int) -> list[Group]:
    """Whole groups of about so many completions, from steps spread evenly from first to last."""
    total = sum(len(group.samples) for group in run.groups)
    if total <= completions:
        return list(run.groups)
    steps = sorted({group.step for group in run.groups})
    kept = min(len(steps), max(2, int(len(steps) * completions / total)))
    wanted = {steps[round(i * (len(steps) - 1) / max(1, kept - 1))] for i in range(kept)}
    chosen: list[Group] = []
    for group in run.groups:
        if group.step in wanted and completions > 0:
            chosen.append(group)
            completions -= len(group.samples)
    return chosen


def distinct(samples: Sequence[Sample]) -> list[Sample]:
    """The different completions of a group, best advantage first."""
    merged: dict[tuple[object, ...], Sample] = {}
    for sample in samples:
        key = (sample.text, *sample.rewards.items(), sample.advantage, sample.read)
        merged[key] = replace(sample, count=merged[key].count + 1 if key in merged else 1)
    return sorted(merged.values(), key=lambda sample: (-(sample.advantage or 0.0), -sample.count))


@lru_cache(maxsize=512)
def thumbnail(path: str) -> bytes | None:
    """JPEG of at most 320 pixels a side; None if the file is gone or no image."""
    from PIL import Image

    buffer = io.BytesIO()
    try:
        with Image.open(path) as image:
            small = image.convert("RGB")
        small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
        small.save(buffer, format="JPEG", quality=85)
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    return buffer.getvalue()


def data_uri(image: bytes) -> str:
    """A JPEG as the address of an ``<img>``."""
    return f"data:image/jpeg;base64,{base64.b64encode(image).decode('ascii')}"


def _image(path: str, kept: dict[bytes, int]) -> int | None:
    """Number of an image among those of the page, each kept once; None if gone, no image, or one too many."""
    small = thumbnail(path)
    if small is None or (small not in kept and sum(map(len, kept)) + len(small) > MOST_BYTES):
        return None
    return kept.setdefault(small, len(kept))


def page_data(runs: Sequence[Run], names: Sequence[str], completions: int) -> str:
    """JSON that may stand inside of a ``<script>``; about so many completions of each run."""
    images = dict[bytes, int]()
    prompts = dict[str, int]()
    groups = [
        {
            "run": number,
            "step": group.step,
            "prompt": prompts.setdefault(group.prompt, len(prompts)),
            "question": group.question,
            "solution": group.solution,
            "images": [_image(path, images) for path in group.images],
            "on": group.image_index,
            "gold": group.gold,
            "rows": list(map(vars, distinct(group.samples))),
        }
        for number, run in enumerate(runs)
        for group in groups_within(run, completions)
    ]
    drawn = [
        vars(chart) | {"lines": [vars(thinned(line)) for line in chart.lines], "flat": chart.is_flat}
        for chart in charts(runs)
    ]
    data = {"runs": names, "charts": drawn, "prompts": list(prompts), "groups": groups}
    shown = {name: _shown(value) for name, value in data.items()} | {"images": list(map(data_uri, images))}
    text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(_HARMLESS)


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
