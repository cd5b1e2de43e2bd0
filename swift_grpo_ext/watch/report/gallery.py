"""Which groups the report shows, and how: the same completions once, with how often they came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from swift_grpo_ext.watch.report.completions import Group, Region, Sample
from swift_grpo_ext.watch.report.run import Run


@dataclass(frozen=True)
class Row:
    """One distinct completion of a group, and how many times it was sampled."""

    text: str
    count: int
    rewards: tuple[tuple[str, float | None], ...]
    advantage: float | None
    regions: tuple[Region, ...] = ()


def shown_groups(run: Run, steps: int, per_step: int) -> list[Group]:
    """Groups spread evenly over the run; at each step those with the widest advantages first."""
    by_step = _by_step(run)
    shown = []
    for step in _spread(sorted(by_step), steps):
        shown += sorted(by_step[step], key=spread_of_advantages, reverse=True)[:per_step]
    return shown


def groups_within(run: Run, completions: int) -> list[Group]:
    """Whole groups, together of about so many completions, in order: all, or from steps spread evenly.

    The first and the last step are among them.
    """
    total = sum(len(group.samples) for group in run.groups)
    if total <= completions:
        return list(run.groups)
    by_step = _by_step(run)
    kept = max(2, int(len(by_step) * completions / total))
    left = completions
    chosen: list[Group] = []
    for group in (group for step in _spread(sorted(by_step), kept) for group in by_step[step]):
        if left > 0:
            chosen.append(group)
            left -= len(group.samples)
    return chosen


def distinct(samples: Sequence[Sample]) -> list[Row]:
    """The different completions of a group, best advantage first."""
    merged: dict[tuple[object, ...], Row] = {}
    for sample in samples:
        rewards = tuple(sample.rewards.items())
        key = (sample.text, rewards, sample.advantage)
        count = merged[key].count + 1 if key in merged else 1
        merged[key] = Row(sample.text, count, rewards, sample.advantage, sample.regions)
    return sorted(merged.values(), key=lambda row: (-(row.advantage or 0.0), -row.count))


def spread_of_advantages(group: Group) -> float:
    """From the least to the greatest advantage of a group."""
    advantages = [sample.advantage or 0.0 for sample in group.samples]
    return max(advantages, default=0.0) - min(advantages, default=0.0)


def _by_step(run: Run) -> dict[int, list[Group]]:
    by_step: dict[int, list[Group]] = {}
    for group in run.groups:
        by_step.setdefault(group.step, []).append(group)
    return by_step


def _spread(steps: Sequence[int], count: int) -> Iterator[int]:
    """So many of the steps, evenly, the first and the last among them."""
    if len(steps) <= count:
        yield from steps
    elif count == 1:
        yield steps[-1]
    else:
        yield from (steps[round(i * (len(steps) - 1) / (count - 1))] for i in range(count))
