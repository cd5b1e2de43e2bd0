"""Finds rows in a dataset: the number of a given one, and others that may take its place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

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


def other_rows(dataset: object, batch: Sequence[object], bad: Collection[str]) -> Iterator[Any]:
    """Rows that may take the place of broken ones, given by their keys.

    They are of the dataset, from a place on that the broken ones decide, and of the same batch, which is all
    there is where the dataset is a stream.
    """
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") and len(dataset):
        start = int(min(bad), 16) % len(dataset)
        for offset in range(min(len(dataset), _MOST_TRIED)):
            yield dataset[(start + offset) % len(dataset)]
    for row in batch:
        if isinstance(row, Mapping):
            yield row
