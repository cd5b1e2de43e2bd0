"""Rows of a dataset: how broken ones are named, what stands in for them, and names of prompts."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from PIL import Image

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.models.images import content_key, one_line, source_key
from swift_grpo_ext.models.text import label

if TYPE_CHECKING:
    from datasets import Dataset

_LONGEST = 160  # characters of an error of the host's
_SHOWN = 3
_MOST_TRIED = 256
REPLACE = "fix or remove them, or SWIFT_GRPO_EXT_BAD_ROW=skip to have them replaced"


def problem_of(error: Exception, row: Mapping[str, Any]) -> str:
    """Say in one line what is wrong with a row, and where."""
    if isinstance(error, DatasetRowError):
        return str(error).removeprefix("swift-grpo-ext: ")
    return f"it cannot be encoded: {one_line(error, _LONGEST)} [{label(row['messages'])}]"


def in_words(problems: Sequence[str]) -> str:
    """How many rows are broken, and what is wrong with the first of them."""
    return f"{len(problems)} broken row{'s' if len(problems) > 1 else ''}: {'; '.join(problems[:_SHOWN])}"


def instead_of(
    bad: Collection[str], rows: Sequence[object], dataset: Dataset, usable: Callable[[Any], bool], main: bool
) -> dict[str, Any]:
    """Replacement of each broken row, by its key, the same on every rank; ``main`` is the rank that looks."""
    from accelerate.utils import broadcast_object_list, gather_object

    held = set(gather_object([key_of_row(row) for row in rows if isinstance(row, Mapping)]))
    chosen: list[Any] = [None]
    if main:
        spares = _fresh_first(other_rows(dataset, rows, bad), held, bad)
        chosen = [dict(zip(bad, filter(usable, spares), strict=False))]
    return dict(broadcast_object_list(chosen)[0])


def _fresh_first(rows: Iterable[Any], held: Collection[str], bad: Collection[str]) -> Iterator[Any]:
    """Rows that are not bad, each once, held ones at the end; none is read before its turn."""
    seen = set(bad)
    later = []
    for row in rows:
        if (key := key_of_row(row)) in seen:
            continue
        seen.add(key)
        if key in held:
            later.append(row)
        else:
            yield row
    yield from later


def other_rows(dataset: Any, batch: Sequence[object], bad: Collection[str]) -> Iterator[Any]:
    """Rows for broken ones: of the dataset from a place on that their keys decide, and of the same batch."""
    if dataset:
        start = int(min(bad), 16) % len(dataset)
        for offset in range(min(len(dataset), _MOST_TRIED)):
            yield dataset[(start + offset) % len(dataset)]
    for row in batch:
        if isinstance(row, Mapping):
            yield row


def prompt_key(
    messages: Sequence[Mapping[str, object]],
    images: Iterable[object] = (),
    other: Mapping[str, object] | None = None,
) -> str:
    """Name of a prompt: its conversation, image sources (a changed file is another) and further parts."""
    parts = {"messages": messages, "images": [source_key(image) for image in images], "other": other or {}}
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=key_of_value)
    return content_key(text.encode("utf-8", "surrogatepass"))


def key_of_row(row: Mapping[str, Any]) -> str:
    """Name of a dataset row's prompt; the answer in it does not count."""
    messages = list(row["messages"])
    if messages and messages[-1]["role"] == "assistant":
        messages.pop()
    images = row.get("images") or []
    other = {name: row.get(name) for name in ("videos", "audios", "tools", "objects", "chat_template_kwargs")}
    return prompt_key(messages, images if isinstance(images, (list, tuple)) else [images], other)


def key_of_value(value: Any) -> str:
    """Name of what JSON has no word for: bytes and images by their content, anything else by its text."""
    if isinstance(value, (bytes, Image.Image)):
        return source_key(value)
    return content_key(value.tobytes()) if hasattr(value, "tobytes") else repr(value)
