"""What a row's conversation asks."""

from __future__ import annotations

from collections.abc import Mapping


def last_question(messages: object) -> str:
    """Text of the last user turn in a column ``messages``, a text or typed parts; "" if there is none."""
    turns = messages if isinstance(messages, (list, tuple)) else ()
    asked = [
        turn.get("content") for turn in turns if isinstance(turn, Mapping) and turn.get("role") == "user"
    ]
    return _text_of(asked[-1]) if asked else ""


def completion_text(completion: object) -> str:
    """What the model wrote: a text, or the last one of a list of messages; empty for anything else."""
    last = completion[-1] if isinstance(completion, (list, tuple)) and completion else completion
    return _text_of(last.get("content")) if isinstance(last, Mapping) else _text_of(completion, parts=False)


def _text_of(content: object, parts: bool = True) -> str:
    """A content as text: a text, or a list of typed parts."""
    if isinstance(content, str):
        return content
    listed = content if parts and isinstance(content, (list, tuple)) else ()
    texts = [part.get("text") for part in listed if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))
