"""Golds as texts, and written as the completion that must score the maximum."""

import json
from collections.abc import Mapping
from typing import Any

from swift_grpo_ext.rewards.contract import Columns, Reward, Unscorable, gold_value
from swift_grpo_ext.rewards.json_text import Json, decoded, literal, strict
from swift_grpo_ext.rewards.place import MAX_ANSWER_CHARS, is_text

_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)


def gold_from(columns: Columns, names: tuple[str, ...], source: str, missing: Any = None) -> dict[str, Any]:
    """The columns of a row or batch with `source` in place of ``solution``, and without any other gold."""
    others = {name: value for name, value in columns.items() if name not in names}
    return {**others, "solution": columns.get(source, missing)}


def listed(value: Json) -> list[Json] | None:
    """The items of a list, also of one written as text; ``{"answer": text}`` gives its text; else None."""
    if isinstance(value, str) and value[:1] == "[" and value[-1:] == "]" and len(value) <= MAX_ANSWER_CHARS:
        value = decoded(value, strict, literal)
    if not isinstance(value, (list, tuple)):
        return None
    return [item.get("answer") if isinstance(item, Mapping) else item for item in value]


def gold_strings(columns: Columns, names: tuple[str, ...]) -> list[str]:
    """The gold as one text or several that are all right; numbers are written out, gaps left out.

    Raises:
        NoGold: Every one of the columns is missing or empty.
        Unscorable: None of the golds is a text or number that an answer may be as long as.
    """
    value = gold_value(columns, names)
    items = listed(value)
    texts = [str(text) for text in ([value] if items is None else items) if is_text(text)]
    fitting = [text for text in dict.fromkeys(texts) if 0 < len(text) <= MAX_ANSWER_CHARS]
    if not fitting:
        raise Unscorable(f"gold {value!r:.80} is not text of 1 to {MAX_ANSWER_CHARS} characters")
    return fitting


def as_text(value: Json) -> str:
    """A gold value as a model would write it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else _ENCODER.encode(value)


def gold_completion(reward: Reward, columns: Columns, **parameters: object) -> str:
    """A completion that carries the row's gold answer in its place."""
    chosen = reward.declared.packed(parameters)
    text = reward.gold_text(columns, **chosen) if reward.gold_text else gold_strings(columns, reward.gold)[0]
    return f"<think>\n-\n</think>\n<answer>\n{text}\n</answer>"
