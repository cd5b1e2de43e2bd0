"""Completions of a generation batch in figures and in words."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

_SHOWN = 60
_NOISE = 1e-3  # advantages below this are none where ms-swift itself finds the rewards of every group equal
_ROWS_SEARCHED = 20_000
_LEAST = 64  # characters below which a text is too short to be told from noise by how well it packs
_PACKED = 0.12  # prose packs to a third of its size, a loop to a few percent
_UNKNOWN = 0.05


def advantaged_share(advantages: Sequence[float], figures: Mapping[str, float]) -> float | None:
    """Share of completions with an advantage that is no rounding, of which Adam makes whole steps, too."""
    if not advantages:
        return None
    least = _NOISE if figures.get("frac_reward_zero_std") == 1 else 0.0
    return sum(not abs(value) <= least for value in advantages) / len(advantages)


def is_garbage(text: str, cut_off: bool) -> bool:
    """True for a loop that ran into the length limit, or a text with many undecodable characters."""
    if not text:
        return cut_off
    if text.count("\N{REPLACEMENT CHARACTER}") > _UNKNOWN * len(text):
        return True
    data = text.encode("utf-8", "replace")
    return cut_off and len(text) >= _LEAST and len(zlib.compress(data)) < _PACKED * len(data)


class Completed(Protocol):
    """What is read of a sample; its completion is the last message."""

    messages: Sequence[Mapping[str, object]]
    images: Sequence[object]
    extra: Mapping[str, object]


def described(sample: Completed, dataset: Iterable[object] | None) -> str:
    """One sample in words: its row in a dataset, what the model wrote, and what the gold is if it has one."""
    gold = sample.extra.get("solution")
    expected = f", gold {_short(gold)}" if gold is not None else ""
    return f"{row_name(sample, dataset)}: completion {_short(sample.messages[-1]['content'])}{expected}"


def row_name(sample: Completed, dataset: Iterable[object] | None = None) -> str:
    """What to call a row: its number in the dataset if it is found, its own id, and its image."""
    number = _row_number(sample, dataset)
    image = next((path for path in map(_path, sample.images or ()) if path), "")
    name = "row" if number is None else f"row {number}"
    name += f" id {sample.extra['id']}" if "id" in sample.extra else ""
    return f"{name} ({image})" if image else name


def _row_number(sample: Completed, dataset: Iterable[object] | None) -> int | None:
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
