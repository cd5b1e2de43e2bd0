"""Finds rows in a dataset: the number of a given one, and others that may take its place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from swift_grpo_ext.models.prompts import key_of_row

_MOST_TRIED = 256


def row_number(dataset: Any, row: Mapping[str, Any]) -> int | None:
    """Number of a row, counted from 0 before the host shuffled; None in a stream, or if it is not there.

    It is the line of the dataset file, unless the host has dropped lines before it.
    """
    try:
        conversations = dataset["messages"]
    except (TypeError, KeyError, NotImplementedError):
        return None
    for number, messages in enumerate(conversations):
        if messages == row["messages"] and dataset[number].get("images") == row.get("images"):
            order = getattr(dataset, "_indices", None)
            return number if order is None else int(order.column(0)[number].as_py())
    return None


def instead_of(
    bad: Collection[str], rows: Sequence[object], dataset: object, usable: Callable[[Any], bool], main: bool
) -> dict[str, Any]:
    """For each broken row, by its key, another one, the same on every rank: all of them come here.

    Rows that no rank holds come first; there may be fewer than broken ones. ``main`` is the rank that looks.
    """
    from accelerate.utils import broadcast_object_list, gather_object

    held = set(gather_object([key_of_row(row) for row in rows if isinstance(row, Mapping)]))
    chosen: list[Any] = [None]
    if main:
        spares = _fresh_first(other_rows(dataset, rows, bad), held)
        good = (row for key, row in spares if key not in bad and usable(row))
        chosen = [dict(zip(bad, good, strict=False))]
    return dict(broadcast_object_list(chosen)[0])


def _fresh_first(rows: Iterable[Any], held: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Rows with their keys, each once, those that are held already at the end."""
    fresh: set[str] = set()
    later: dict[str, Any] = {}
    for row in rows:
        key = key_of_row(row)
        if key in held:
            later.setdefault(key, row)
        elif key not in fresh:
            fresh.add(key)
            yield key, row
    yield from later.items()


def other_rows(dataset: Any, batch: Sequence[object], bad: Collection[str]) -> Iterator[Any]:
    """Rows that may take the place of broken ones, given by their keys.

    They are of the dataset, from a place on that the broken ones decide, in a stream from its start on, and
    of the same batch.
    """
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") and len(dataset):
        start = int(min(bad), 16) % len(dataset)
        for offset in range(min(len(dataset), _MOST_TRIED)):
            yield dataset[(start + offset) % len(dataset)]
    elif hasattr(dataset, "__iter__"):
        yield from islice(dataset, _MOST_TRIED)
    for row in batch:
        if isinstance(row, Mapping):
            yield row
