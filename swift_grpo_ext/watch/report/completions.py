"""The completions of a run as data: groups, samples, and what they point at."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

# Columns of completions.jsonl that are no reward.
_OF_PROMPT = {"step", "prompt", "solution", "images"}
_OTHER_COLUMNS = _OF_PROMPT | {"completion", "advantages", "regions", "num_turns", "entropy", "split"}
_MOST_REGIONS = 300


Region = dict[str, object]
"""``at``, a box (left, top, right, bottom) or a point (x, y) in fractions of the image, and its ``label``."""


@dataclass(frozen=True)
class Sample:
    """One completion with what it earned; a reward of None is "not scored"."""

    text: str
    rewards: dict[str, float | None]
    advantage: float | None
    regions: tuple[Region, ...] = ()
    count: int = 1  # times that its group has it


@dataclass(frozen=True)
class Group:
    """The completions of one prompt at one step."""

    step: int
    prompt: str  # as the model reads it, special tokens included
    solution: str  # the gold answer, "" if the dataset has none
    images: tuple[str, ...]  # paths, as far as the run logged them
    samples: tuple[Sample, ...]
    gold: tuple[Region, ...] = ()
    image_index: int = 0  # which of the images regions lie on


def read_groups(rows: Sequence[dict[str, object]], size: int) -> Iterable[Group]:
    """Rows of completions.jsonl as groups: ms-swift writes the ``size`` completions of a prompt in a row."""
    for _, same in groupby(rows, key=lambda row: [row.get(name) for name in _OF_PROMPT]):
        several = list(same)
        yield from (_group(several[start : start + size]) for start in range(0, len(several), size))


def _group(rows: Sequence[dict[str, object]]) -> Group:
    first = rows[0]
    regions = _mapping(first.get("regions"))
    return Group(
        step=whole(first.get("step")),
        prompt=_text(first.get("prompt")),
        solution=_text(first.get("solution")),
        images=tuple(image for image in _list(first.get("images")) if isinstance(image, str)),
        samples=tuple(map(_sample, rows)),
        gold=_regions(regions.get("gold")),
        image_index=whole(regions.get("image")),
    )


def _sample(row: dict[str, object]) -> Sample:
    figures = {name: value for name, value in row.items() if value is None or isinstance(value, (int, float))}
    advantage = figures.get("advantages")
    return Sample(
        text=_text(row.get("completion")),
        rewards={name: value for name, value in figures.items() if name not in _OTHER_COLUMNS},
        advantage=None if advantage is None else float(advantage),
        regions=_regions(_mapping(row.get("regions")).get("predicted")),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def whole(value: object) -> int:
    """A whole number as a run logged it; 0 for anything else."""
    try:
        return int(value) if isinstance(value, (int, float, str)) else 0
    except (ValueError, OverflowError):
        return 0


def _regions(value: object) -> tuple[Region, ...]:
    found = [one for one in map(_mapping, _list(value)[:_MOST_REGIONS]) if _is_place(one.get("at"))]
    return tuple({"at": tuple(map(float, one["at"])), "label": _text(one.get("label"))[:80]} for one in found)


def _is_place(at: object) -> bool:
    return (
        isinstance(at, list)
        and len(at) in (2, 4)
        and all(isinstance(number, (int, float)) and math.isfinite(number) for number in at)
    )


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
