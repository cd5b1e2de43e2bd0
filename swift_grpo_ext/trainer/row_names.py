"""Names of dataset rows in messages: the row's number, its own id, its image."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from swift_grpo_ext.rewards.contract import last_question
from swift_grpo_ext.trainer.samples import VisionSample

_SHOWN = 60
_ROWS_SEARCHED = 20_000

Turns = Sequence[Mapping[str, Any]]
"""Messages of a row or a sample."""


def described(sample: VisionSample, dataset: Iterable[object] | None) -> str:
    """One sample in words: its row in a dataset, what the model wrote, and what the gold is if it has one."""
    gold = sample.extra.get("solution")
    expected = f", gold {_short(gold)}" if gold is not None else ""
    return f"{row_name(sample, dataset)}: completion {_short(sample.messages[-1]['content'])}{expected}"


def row_name(sample: VisionSample, dataset: Iterable[object] | None = None) -> str:
    """Number of a row in the dataset if it is found, its own id, and its image, video or question."""
    number = row_number(dataset, sample.messages, sample.images, most=_ROWS_SEARCHED)
    shown = next(filter(None, map(_path, [*(sample.images or ()), *(sample.videos or ())])), "")
    if not shown and (question := last_question(sample.messages)):  # pictures without a path
        shown = f"asks {_short(question)}"
    name = "row" if number is None else f"row {number}"
    name += f" id {sample.extra['id']}" if "id" in sample.extra else ""
    return f"{name} ({shown})" if shown else name


def row_number(
    dataset: Iterable[object] | None,
    messages: Turns | None,
    images: Sequence[object] | None,
    *,
    most: int | None,
) -> int | None:
    """Line of a row in the dataset's file, from 0, if ms-swift has dropped none before it.

    It is the first row with the same questions and images; None in a stream, and where the first ``most``
    rows (None: all) have no such row.
    """
    if dataset is None or not hasattr(dataset, "__getitem__"):
        return None
    key = _key(messages, images)
    for number, row in enumerate(islice(dataset, most)):
        if isinstance(row, Mapping) and _key(row.get("messages"), row.get("images")) == key:
            shuffled = getattr(dataset, "_indices", None)
            return number if shuffled is None else int(shuffled.column(0)[number].as_py())
    return None


def _key(messages: Turns | None, images: Sequence[object] | None) -> tuple[object, ...]:
    """Key that tells a row from others: its questions, and its images by path or by what they hold."""
    questions = [str(turn.get("content")) for turn in messages or () if turn.get("role") == "user"]
    return (*questions, *(_path(image) or _held(image) for image in images or ()))


def _held(image: object) -> object:
    content = image.get("bytes") if isinstance(image, Mapping) else image
    return hash(content) if isinstance(content, (str, bytes)) else ""


def _path(image: object) -> str:
    if isinstance(image, list):  # frames of a video
        image = next(iter(image), None)
    if isinstance(image, Mapping):
        return str(image.get("path") or "")
    return image if isinstance(image, str) and len(image) < 4096 else ""


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
