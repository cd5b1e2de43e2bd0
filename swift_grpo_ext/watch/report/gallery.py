"""Which groups the report shows, and how: the same completions once, with how often they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swift_grpo_ext.watch.report.images import data_uri, thumbnail
from swift_grpo_ext.watch.report.run import Group, Run, Sample

STEPS_SHOWN = 6
GROUPS_PER_STEP = 4
_LONGEST_TEXT = 4000


@dataclass(frozen=True)
class Row:
    """One distinct completion of a group, and how many times it was sampled."""

    text: str
    count: int
    rewards: tuple[tuple[str, float | None], ...]
    advantage: float | None


@dataclass(frozen=True)
class Card:
    """One group as the report shows it.

    Attributes:
        step: Optimizer step.
        prompt: The prompt as the model reads it.
        solution: The gold answer, or "".
        images: Thumbnails as addresses; None stands for an image that cannot be read.
        rows: Distinct completions, best advantage first.
    """

    step: int
    prompt: str
    solution: str
    images: tuple[str | None, ...]
    rows: tuple[Row, ...]


def shown_groups(run: Run, steps: int = STEPS_SHOWN, per_step: int = GROUPS_PER_STEP) -> list[Group]:
    """Groups spread evenly over the run; at each step those with the widest advantages first."""
    by_step: dict[int, list[Group]] = {}
    for group in run.groups:
        by_step.setdefault(group.step, []).append(group)
    shown = []
    for step in _spread(sorted(by_step), steps):
        shown += sorted(by_step[step], key=_spread_of_advantages, reverse=True)[:per_step]
    return shown


def card(group: Group) -> Card:
    """How one group is shown."""
    images = [thumbnail(path) for path in group.images]
    return Card(
        step=group.step,
        prompt=_shorten(group.prompt),
        solution=_shorten(group.solution),
        images=tuple(None if png is None else data_uri(png) for png in images),
        rows=tuple(distinct(group.samples)),
    )


def distinct(samples: Sequence[Sample]) -> list[Row]:
    """The different completions of a group, best advantage first."""
    merged: dict[tuple[object, ...], Row] = {}
    for sample in samples:
        rewards = tuple(sample.rewards.items())
        key = (sample.text, rewards, sample.advantage)
        count = merged[key].count + 1 if key in merged else 1
        merged[key] = Row(_shorten(sample.text), count, rewards, sample.advantage)
    return sorted(merged.values(), key=lambda row: (-(row.advantage or 0.0), -row.count))


def _spread_of_advantages(group: Group) -> float:
    advantages = [sample.advantage or 0.0 for sample in group.samples]
    return max(advantages, default=0.0) - min(advantages, default=0.0)


def _spread(steps: Sequence[int], count: int) -> list[int]:
    """So many of the steps, evenly, the first and the last among them."""
    if len(steps) <= count:
        return list(steps)
    return [steps[round(i * (len(steps) - 1) / (count - 1))] for i in range(count)]


def _shorten(text: str) -> str:
    hidden = len(text) - _LONGEST_TEXT
    return text if hidden <= 0 else f"{text[:_LONGEST_TEXT]} … ({hidden:,} more characters)"
