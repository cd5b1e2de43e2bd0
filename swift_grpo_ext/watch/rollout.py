"""Facts of one generation batch: from what the host has gathered of all ranks, and this rank's samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from swift_grpo_ext.watch.records import RolloutFacts, empty_share, identical_share, reward_facts

_SHOWN = 60
_NOISE = 1e-3
"""Advantages below this are none where the host itself finds the rewards of every group equal."""
_ROWS_SEARCHED = 20_000


def rollout_facts(
    *,
    names: Sequence[str],
    scores: Sequence[Sequence[float]],
    completions: Sequence[str],
    advantages: Sequence[float],
    figures: Mapping[str, float],
    group_size: int,
    example: str = "",
) -> RolloutFacts:
    """Facts of a batch of all ranks.

    Args:
        names: Of the reward functions.
        scores: One row for each completion, one column for each function; NaN for "not scored".
        completions: Their texts, groups one after the other.
        advantages: Of the completions.
        figures: The host's metrics of this batch, by name.
        group_size: Completions per group; 0 if groups differ in size.
        example: See `RolloutFacts`.
    """
    columns = zip(*scores, strict=True) if scores else ([],) * len(names)
    return RolloutFacts(
        groups=len(completions) // group_size if group_size else 0,
        rewards=tuple(map(reward_facts, names, columns)),
        reward=figures.get("reward"),
        reward_std=figures.get("reward_std"),
        advantaged=advantaged_share(advantages, figures),
        zero_variance=figures.get("frac_reward_zero_std"),
        identical=identical_share(completions, group_size),
        clipped=figures.get("completions/clipped_ratio"),
        empty=empty_share(completions),
        example=example,
    )


def advantaged_share(advantages: Sequence[float], figures: Mapping[str, float]) -> float | None:
    """Share of completions with an advantage; None without completions.

    A reward that is the same but for noise far below its own resolution gives advantages that are not 0, from
    which an optimizer that divides by the gradient's size makes steps as large as any other.

    Args:
        advantages: Of the completions.
        figures: As in `rollout_facts`.
    """
    if not advantages:
        return None
    least = _NOISE if figures.get("frac_reward_zero_std") == 1 else 0.0
    return sum(not abs(value) <= least for value in advantages) / len(advantages)


def described(sample: Any, dataset: Any) -> str:
    """One sample in words: its row, what the model wrote, and what the gold is if the row has one.

    Args:
        sample: The host's sample, with the completion as its last message.
        dataset: The training set, searched for the row's number.
    """
    gold = sample.extra.get("solution")
    expected = f", gold {_short(gold)}" if gold is not None else ""
    return f"{row_name(sample, dataset)}: completion {_short(sample.messages[-1]['content'])}{expected}"


def row_name(sample: Any, dataset: Any = None) -> str:
    """What to call a row: its number in the dataset if it is found, its own id, and its image."""
    number = _row_number(sample, dataset)
    image = next((path for path in map(_path, sample.images or ()) if path), "")
    parts = [
        f"row {number}" if number is not None else "row",
        f"id {sample.extra['id']}" if "id" in sample.extra else "",
        f"({image})" if image else "",
    ]
    return " ".join(filter(None, parts))


def _row_number(sample: Any, dataset: Any) -> int | None:
    """Position of the first row with the sample's question and images; None if it is not among the first."""
    if dataset is None or not hasattr(dataset, "__getitem__"):
        return None
    wanted = _key(sample.messages, sample.images)
    for number, row in enumerate(islice(dataset, _ROWS_SEARCHED)):
        if isinstance(row, Mapping) and _key(row.get("messages"), row.get("images")) == wanted:
            return number
    return None


def _key(messages: Any, images: Any) -> tuple[str, ...]:
    asked = [str(turn.get("content")) for turn in messages or () if turn.get("role") == "user"]
    return (*asked, *map(_path, images or ()))


def _path(image: object) -> str:
    if isinstance(image, Mapping):
        return str(image.get("path") or "")
    return image if isinstance(image, str) and len(image) < 4096 else ""


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
