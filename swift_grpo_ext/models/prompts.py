"""Names of prompts: equal for the same messages with the same media, whoever holds them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from swift_grpo_ext.models.images import source_key


def prompt_key(
    messages: Sequence[Mapping[str, object]],
    images: Iterable[object] = (),
    other: Mapping[str, object] | None = None,
) -> str:
    """Name of a prompt.

    Args:
        messages: The conversation.
        images: Image sources; two files of equal bytes may count as different, a changed file always does.
        other: Further parts of the prompt, such as videos, tools or objects.
    """
    parts = {"messages": messages, "images": [source_key(image) for image in images], "other": other or {}}
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=_key_of)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def key_of_row(row: Mapping[str, Any]) -> str:
    """Name of a dataset row's prompt; the answer in it does not count."""
    messages = list(row["messages"])
    if messages and messages[-1]["role"] == "assistant":
        messages.pop()
    images = row.get("images") or []
    other = {name: row.get(name) for name in ("videos", "audios", "tools", "objects", "chat_template_kwargs")}
    return prompt_key(messages, images if isinstance(images, (list, tuple)) else [images], other)


def _key_of(value: object) -> str:
    return source_key(value) if isinstance(value, bytes) or hasattr(value, "tobytes") else repr(value)
