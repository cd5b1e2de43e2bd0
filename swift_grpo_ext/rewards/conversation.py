"""What a row's conversation asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def last_question(messages: Any) -> str:
    """Text of the last user turn in a column ``messages``; empty if there is none.

    Args:
        messages: Turns with ``role`` and ``content``, the latter a text or a list of typed parts.
    """
    turns = messages if isinstance(messages, (list, tuple)) else ()
    asked = [
        turn.get("content") for turn in turns if isinstance(turn, Mapping) and turn.get("role") == "user"
    ]
    if not asked or not asked[-1]:
        return ""
    if isinstance(asked[-1], str):
        return asked[-1]
    parts = asked[-1] if _is_list(asked[-1]) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))
