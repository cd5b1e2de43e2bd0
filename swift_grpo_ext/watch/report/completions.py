"""The completions of a run as data: groups, samples, and what they point at."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Columns of completions.jsonl that are no reward.
_OTHER_COLUMNS = {
    "step",
    "prompt",
    "completion",
    "advantages",
    "solution",
    "images",
    "regions",
    "num_turns",
    "entropy",
    "split",
}
_MOST_REGIONS = 300


@dataclass(frozen=True)
class Region:
    """A box or a point on an image.

    Attributes:
        at: ``(left, top, right, bottom)`` or ``(x, y)`` in fractions of the image.
        label: As the dataset or the model calls it.
    """

    at: tuple[float, ...]
    label: str = ""


@dataclass(frozen=True)
class Sample:
    """One completion with what it earned.

    Attributes:
        text: The completion.
        rewards: Value by reward function; None is "not scored".
        advantage: Its advantage, None if the host wrote none.
        regions: Boxes and points that it names.
    """

    text: str
    rewards: dict[str, float | None]
    advantage: float | None
    regions: tuple[Region, ...] = ()


@dataclass(frozen=True)
class Group:
    """The completions of one prompt at one step.

    Attributes:
        step: Optimizer step at which they were logged.
        prompt: The prompt as the model reads it, special tokens included.
        solution: The gold answer, "" if the dataset has none.
        images: Paths of the prompt's images, as far as the run logged them.
        samples: The completions.
        gold: Boxes and points of the gold answer.
        image_index: Which of the images the regions lie on.
    """

    step: int
    prompt: str
    solution: str
    images: tuple[str, ...]
    samples: tuple[Sample, ...]
    gold: tuple[Region, ...] = ()
    image_index: int = 0


def read_groups(rows: Sequence[dict[str, object]], size: int) -> Iterable[Group]:
    """Rows of completions.jsonl as groups: ms-swift writes the ``size`` completions of a prompt in a row."""
    start = 0
    while start < len(rows):
        first = rows[start]
        end = start + 1
        while end < min(start + size, len(rows)) and _same_prompt(rows[end], first):
            end += 1
        regions = _mapping(first.get("regions"))
        yield Group(
            step=whole(first.get("step")),
            prompt=_text(first.get("prompt")),
            solution=_text(first.get("solution")),
            images=tuple(image for image in _list(first.get("images")) if isinstance(image, str)),
            samples=tuple(_sample(row) for row in rows[start:end]),
            gold=_regions(regions.get("gold")),
            image_index=whole(regions.get("image")),
        )
        start = end


def _same_prompt(row: dict[str, object], other: dict[str, object]) -> bool:
    return all(row.get(key) == other.get(key) for key in ("step", "prompt", "solution", "images"))


def _sample(row: dict[str, object]) -> Sample:
    rewards = {
        name: value
        for name, value in row.items()
        if name not in _OTHER_COLUMNS and (value is None or isinstance(value, (int, float)))
    }
    advantage = row.get("advantages")
    return Sample(
        text=_text(row.get("completion")),
        rewards=rewards,
        advantage=float(advantage) if isinstance(advantage, (int, float)) else None,
        regions=_regions(_mapping(row.get("regions")).get("predicted")),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def whole(value: Any) -> int:
    """A whole number as a run logged it; 0 for anything else."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


def _regions(value: object) -> tuple[Region, ...]:
    found = _list(value)[:_MOST_REGIONS]
    places = [(one["at"], one.get("label")) for one in map(_mapping, found) if _is_place(one.get("at"))]
    return tuple(Region(tuple(map(float, at)), _text(label)) for at, label in places)


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
