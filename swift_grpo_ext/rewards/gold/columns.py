"""Golds as texts, and written as the completion that must score the maximum."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from swift_grpo_ext.rewards.contract import Columns, Reward, Unscorable, as_gold, gold_value
from swift_grpo_ext.rewards.json_text import Json, decoded, literal, strict
from swift_grpo_ext.rewards.place import MAX_ANSWER_CHARS, bare_gold

_T = TypeVar("_T")


def gold_from(columns: Columns, names: tuple[str, ...], source: str, missing: Any = None) -> dict[str, Any]:
    """The columns of a row or batch with `source` in place of ``solution``, and without any other gold."""
    others = {name: value for name, value in columns.items() if name not in names}
    return {**others, "solution": columns.get(source, missing)}


def listed(value: Json) -> list[Json] | None:
    """The items of a list, also in JSON or Python, of ``{"answer": text}`` their texts; None for no list."""
    if isinstance(value, str) and value[:1] == "[" and value[-1:] == "]" and len(value) <= MAX_ANSWER_CHARS:
        value = decoded(value, strict, literal)
    if not isinstance(value, (list, tuple)):
        return None
    return [item.get("answer") if isinstance(item, Mapping) else item for item in value]


def gold_string(columns: Columns, names: tuple[str, ...]) -> str:
    """The gold as text: numbers are written out, a list of one is its item, anything else is unscorable.

    Raises:
        NoGold: Every one of the columns is missing or empty.
        Unscorable: The gold is not one text or number, or longer than an answer may be.
    """
    value = gold_value(columns, names)
    items = value if isinstance(value, list) else [value]
    if len(items) == 1 and _is_text(items[0]):
        return short_enough(str(items[0]))
    raise Unscorable(f"gold {value!r:.80} is not text")


def read_gold(columns: Columns, names: tuple[str, ...], read: Callable[[str], _T]) -> _T:
    """The gold of a row, read as answers are.

    Raises:
        NoGold: Every one of the columns is missing or empty.
        Unscorable: The gold is no value of this kind.
    """
    gold = gold_value(columns, names)
    return as_gold(read, bare_gold(str(gold) if isinstance(gold, bool) else gold_string(columns, names)))


def gold_strings(columns: Columns, names: tuple[str, ...]) -> list[str]:
    """The gold as one text or several that are all right; numbers are written out, gaps left out.

    Raises:
        NoGold: Every one of the columns is missing or empty.
        Unscorable: None of the golds is a text or number that an answer may be as long as.
    """
    value = gold_value(columns, names)
    items = listed(value)
    texts = [str(text) for text in ([value] if items is None else items) if _is_text(text)]
    fitting = [text for text in dict.fromkeys(texts) if len(text) <= MAX_ANSWER_CHARS]
    if not fitting:
        raise Unscorable(f"gold {value!r:.80} is no text of at most {MAX_ANSWER_CHARS} characters")
    return fitting


def _is_text(value: Json) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def short_enough(gold: str) -> str:
    """The gold, if an answer may be as long; no answer could reach a longer one.

    Raises:
        Unscorable: The gold is longer than that.
    """
    if len(gold) > MAX_ANSWER_CHARS:
        raise Unscorable(f"gold of {len(gold)} characters, an answer has at most {MAX_ANSWER_CHARS}")
    return gold


def as_text(value: Json) -> str:
    """A gold value as a model would write it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def gold_completion(reward: Reward, columns: Columns, **parameters: object) -> str:
    """A completion that carries the row's gold answer in its place."""
    chosen = reward.declared.packed({**parameters, **reward.row_parameters(columns)})
    written = reward.gold_text(columns, **chosen) if reward.gold_text else gold_value(columns, reward.gold)
    text = as_text(written)
    return f"<think>\n-\n</think>\n<answer>\n{text}\n</answer>"
