"""Data for the page's script, as JSON: metrics, completions, and each prompt and image only once."""

import base64
import io
import json
import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean

import numpy

from swift_grpo_ext.watch.report.bill import bill
from swift_grpo_ext.watch.report.run import Completion, LoggedRun, prompt_of, whole

THUMBNAIL_SIDE = 320
MOST_BYTES = 24 * 2**20  # of all thumbnails of a page together
MOST_POINTS = 1500  # of a curve
_LONGEST_TEXT = 4000
_UPDATES = ("num_iterations", "steps_per_generation", "gradient_accumulation_steps")

# Inside of a <script> nothing may look like a tag; U+2028 and U+2029 end lines in older JavaScript.
_HARMLESS = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def page_data(runs: Sequence[LoggedRun], names: Sequence[str], completions: int) -> str:
    """JSON that is safe inside a ``<script>``, with about ``completions`` completions of each run."""
    images: dict[bytes, int] = {}
    prompts: dict[str, int] = {}

    def shown(row: Completion) -> Completion:
        paths = row["images"] if isinstance(row.get("images"), list) else []
        numbers = [_image(path, images) for path in paths if isinstance(path, str)]
        return {**row, "prompt": prompts.setdefault(str(row.get("prompt")), len(prompts)), "images": numbers}

    def drawn(run: LoggedRun, name: str) -> dict[str, object]:
        means = {prompt: fmean(rewards) for prompt, rewards in run.rewards_of_prompts.items()}
        rows = [{**shown(row), "of_prompt": means[prompt_of(row)]} for row in rows_within(run, completions)]
        return {**_curves(run), "name": name, "completions": rows, "means": list(means.values())}

    data = {
        "runs": _shown(list(map(drawn, runs, names))),
        "prompts": _shown(list(prompts)),
        "images": list(map(data_uri, images)),
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(_HARMLESS)


def _curves(run: LoggedRun) -> dict[str, object]:
    """Every logged metric of a run, thinned out if it has very many steps, and its held-out rewards."""
    names = {name for record in run.records for name in record}
    thinned = {
        name: points[:: -(-len(points) // MOST_POINTS)]
        for name in sorted(names)
        if (points := list(run.finite(name).items()))
    }
    scores = [
        {"step": evaluation.step, "reward": reward, **vars(score)}
        for evaluation in run.held_out
        for reward in evaluation.scores
        if (score := evaluation.interval(reward)) and math.isfinite(score.low)
    ]
    return {
        "rewards": run.reward_names,
        "figures": thinned,
        "held_out": scores,
        "bill": bill(run),
        "steps": run.records[-1].get("global_step/max_steps"),
        "logged": len(run.completions),
        "size": whole(run.arguments.get("num_generations")) or 8,
        "updates": list(map(run.arguments.get, _UPDATES)),
        "evaluated": run.evaluated,
    }


def rows_within(run: LoggedRun, completions: int) -> list[Completion]:
    """All completions of some steps, evenly spaced from the first to the last; about ``completions`` rows."""
    steps = list(dict.fromkeys(row["step"] for row in run.completions))
    kept = min(len(steps), max(1, len(steps) * completions // max(1, len(run.completions))))
    chosen = {steps[place] for place in numpy.linspace(0, len(steps) - 1, kept).round().astype(int)}
    return [row for row in run.completions if row["step"] in chosen]


@lru_cache(maxsize=512)
def thumbnail(path: str) -> bytes | None:
    """JPEG of at most 320 pixels a side; None if the file is missing or not an image."""
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
    """A JPEG as the URL of an ``<img>``."""
    return f"data:image/jpeg;base64,{base64.b64encode(image).decode('ascii')}"


def _image(path: str, kept: dict[bytes, int]) -> int | None:
    """Index of an image among those of the page; None if missing, not an image, or over the size limit."""
    small = thumbnail(path)
    if small is None or (small not in kept and sum(map(len, kept)) + len(small) > MOST_BYTES):
        return None
    return kept.setdefault(small, len(kept))


def _shown(value: object) -> object:
    """Data for the page: long texts cut, floats rounded to five digits; None for NaN and infinity."""
    if isinstance(value, str):
        hidden = len(value) - _LONGEST_TEXT
        return value if hidden <= 0 else f"{value[:_LONGEST_TEXT]} … ({hidden:,} more characters)"
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, (list, tuple)) else value
