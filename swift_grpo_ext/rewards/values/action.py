"""One action on a screen: JSON, a call, a tool call, or a bare place, which is a click.

>>> [read(text).kind for text in (
...     '{"action": "left_click", "coordinate": [1, 2]}', "[{'action': 'click', 'point': [1, 2]}]",
...     "pyautogui.click(x=1, y=2)", "click(start_box='(1,2)')", "CLICK <point>[[1, 2]]</point>", "[1, 2]",
...     '{"name": "computer_use", "arguments": {"coordinate": [1, 2]}}')] == ["click"] * 7
True
>>> [read(text).text for text in ("scroll(direction='down')", "type(content='hello')", "hotkey('ctrl', 'c')")]
['down', 'hello', 'ctrl c']

The names of actions and arguments are those of ``actions.json``; other arguments are ignored. Two
different actions do not count, nor does one beside other words. Nothing is ever run.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from swift_grpo_ext.rewards.contract import Unread
from swift_grpo_ext.rewards.json_text import Json, decoded, first_value, literal, strict
from swift_grpo_ext.rewards.values import regions, tool_call
from swift_grpo_ext.rewards.values.call import MAX_CALL, Call, call_in
from swift_grpo_ext.rewards.values.region import OrderOf, Region, as_corners, pointed_at

GRAMMAR = "action (JSON with action and coordinate, or a call such as click(x=1, y=2))"
_TABLE = json.loads((Path(__file__).parent / "actions.json").read_text(encoding="utf-8"))


def _by_word(listed: Mapping[str, list[str]]) -> dict[str, str]:
    return {word: meaning for meaning, words in listed.items() for word in words}


KINDS = _by_word(_TABLE["kinds"])  # word to the kind of action, and the text that it says by itself
OPPOSITE: dict[str, str] = _TABLE["opposite"]
_ARGUMENTS = {name.replace("_", ""): role for name, role in _by_word(_TABLE["arguments"]).items()}
_KEYS = _by_word(_TABLE["keys"])
_STATUSES = _by_word(_TABLE["statuses"])
_DIRECTIONS = _by_word(_TABLE["directions"])
_MAX_DEPTH = 3  # of nested calls
# Directions of a positive and of a negative amount.
_AMOUNTS = {"amount_up": ("up", "down"), "amount_down": ("down", "up"), "amount_right": ("right", "left")}

_SEPARATOR = re.compile(r"[\s+,_-]+")
_WORDED = re.compile(
    r"([A-Za-z_]{2,24}|[\u4e00-\u9fff]{2,4})\s{0,4}(?:\[(.*)\]|(<.*>|\[?\(.*\)\]?))?", re.DOTALL
)


@dataclass(frozen=True)
class Action:
    """One action on the screen."""

    kind: str  # ``click``, ``type``, ``scroll`` ... in one spelling
    target: Region | None = None  # where it is or starts: a point, or for a gold a box
    text: str = ""  # what is typed, the direction, the keys, the app, the status
    end: Region | None = None  # where a drag or swipe ends

    @property
    def towards(self) -> str:
        """The direction of a swipe that is given by its two ends, "" for any other action."""
        if self.target is None or self.end is None or self.text:
            return ""
        (x1, y1), (x2, y2) = pointed_at(self.target.place), pointed_at(self.end.place)
        ways = {"up": y1 - y2, "down": y2 - y1, "left": x1 - x2, "right": x2 - x1}
        longest = max(ways, key=ways.__getitem__)
        return longest if ways[longest] > 0 else ""

    def __str__(self) -> str:
        places = [str(pointed_at(region.place)) for region in (self.target, self.end) if region]
        return " ".join(filter(None, (self.kind, *places, self.text)))


def read(text: str, order_of: OrderOf = as_corners) -> Action:
    """Read a text as one action.

    Raises:
        Unread: It is not an action, or holds several different ones.
    """
    values = _values(text)
    actions = [action for value in values if (action := action_of(value, order_of))]
    if not actions:
        place = None if values else _one(text, order_of)
        if place is None:
            raise Unread(text, GRAMMAR)
        return Action("click", replace(place, label=""))
    if any(action != actions[0] for action in actions):
        raise Unread(f"{len(actions)} different actions: {text[:80]!r}")
    return actions[0]


def _values(text: str) -> list[Mapping[str, Json]]:
    """The mappings in a text: its tool calls, its JSON, its call, or a word with a place behind it."""
    if text[:1] in ("{", "["):
        value = decoded(text, first_value, literal)
        items = value if isinstance(value, list) else [value]
        return [item for item in items if isinstance(item, Mapping)] if all(items) else []
    if called := tool_call.read_all(text):
        return [call._asdict() for call in called]
    if (call := call_in(text)) is not None:
        return [{"action": call.name, **_positional(call), **call.named}]
    worded = _WORDED.fullmatch(text[:MAX_CALL])
    if worded is None or word_of(worded[1]) not in KINDS or (worded[3] and not _one(worded[3], as_corners)):
        return []
    return [{"action": worded[1], "coordinate" if worded[3] else "text": worded[3] or worded[2]}]


def _positional(call: Call) -> dict[str, Json]:
    """Arguments without names: places, numbers as x and y of one or two places, texts."""
    numbers = [value for value in call.bare if isinstance(value, (int, float))]
    places = [value for value in call.bare if isinstance(value, list)]
    if len(numbers) > 1 and KINDS.get(word_of(call.name)) in ("drag", "swipe"):
        places = [numbers[:2], numbers[2:]]
    return {
        "coordinate": numbers,
        "pixels": numbers[0] if len(numbers) == 1 else None,
        "path": places,
        "text": " ".join(value for value in call.bare if isinstance(value, str)),
    }


@lru_cache(maxsize=1024)
def word_of(name: str) -> str:
    """A name of an action in the spelling of the table."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip()[:64])
    plain = re.sub(r"[\s-]+", "_", plain.casefold())
    return plain if plain in KINDS else plain.rpartition(".")[2]


def keys_of(text: str) -> frozenset[str]:
    """The keys of a combination: ``Ctrl+C``, ``ctrl c``."""
    parts = [part for part in _SEPARATOR.split(text.strip().casefold()) if part not in ("", "press", "key")]
    return frozenset(_KEYS.get(part, part) for part in parts)


def status_of(text: str) -> str:
    """``success``, ``failure``, or "" for a text that is neither."""
    return _STATUSES.get(text.strip().casefold() or "success", "")


def _direction_of(text: str) -> str:
    """The direction that a text is, "" for any other text."""
    return _DIRECTIONS.get(text.strip().casefold().removeprefix("向"), "")


def action_of(value: Mapping[str, Any], order_of: OrderOf = as_corners) -> Action | None:
    """The action that a mapping holds, flat or as the arguments of a tool; a place alone is a click."""
    by_role = _by_role(value)
    start, end = (_one(by_role.get(role), order_of) for role in ("place", "end"))
    word = word_of(str(by_role.get("action", "")))
    if word not in KINDS and ("action" not in by_role or "arguments" in by_role):
        # A point alone, also as the arguments of a tool such as computer_use.
        return Action("click", start) if start else None
    kind, _, text = KINDS.get(word, word).partition(" ")
    if kind == "click":
        button = _TABLE["buttons"].get(str(by_role.get("button", "")).casefold(), kind)
        kind = (
            "drag"
            if end
            else _TABLE["times"].get(str(by_role.get("times", by_role.get("amount_up"))), button)
        )
    if kind not in ("scroll", "swipe"):
        return Action(kind, start, text or _text(by_role, _TABLE["text_of"].get(kind, "text").split()), end)
    text = text or _direction(by_role)
    return Action(kind, start, text, None if text else end)


def _by_role(value: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """The values of a mapping and its arguments by role, the first of each; of names, that of an action."""
    by_role: dict[str, Any] = {}
    for key, inner in value.items():
        role = _ARGUMENTS.get(regions.plain_key(str(key)), "")
        is_code = role == "action" and isinstance(inner, (int, float))  # AITW's codes are not names
        if not (role and (inner or inner == 0)) or is_code:
            continue
        if role == "arguments":
            by_role[role] = True
            inner = decoded(inner, strict)
            inner = inner[0] if isinstance(inner, list) and len(inner) == 1 else inner
        entries = {role: inner}
        if role in ("action", "arguments") and isinstance(inner, Mapping) and depth < _MAX_DEPTH:
            entries = _by_role(inner, depth + 1)
        for name, each in entries.items():
            # {"type": "function", "name": "click"}: the one that is an action
            if name == "action" and word_of(str(by_role.get(name))) not in KINDS:
                by_role[name] = each
            _give(by_role, name, each)
    return by_role if depth else _with_ends(by_role)


def _give(given: dict[str, Any], role: str, value: Json) -> None:
    """Give a role its value, if it has none yet.

    Raises:
        Unread: It is another place than the one that the role has, and both are boxes or both points.
    """
    here = given.setdefault(role, value)
    if here is not value and role == "place":
        one, other = _one(here, as_corners), _one(value, as_corners)
        if one and other and one.is_box is other.is_box and one != other:
            raise Unread(f"two places of one action, {here!r:.40} and {value!r:.40}")


def _with_ends(given: dict[str, Any]) -> dict[str, Any]:
    """Add ``place``, where the action is or starts, and ``end``, where it ends."""
    for role, x, y in (("place", "x", "y"), ("end", "x2", "y2")):
        if x in given and y in given:
            _give(given, role, [given[x], given[y]])
    path = given.get("path")
    roles = ("start", "place", "end", "to")
    places = path if isinstance(path, list) else [given[role] for role in roles if role in given]
    first, *rest = places or [None]
    return given | {"place": first, "end": rest[-1] if rest else None}


def _one(value: Json, order_of: OrderOf) -> Region | None:
    """The only place of a text, a list or a mapping; None if it holds none or several."""
    if value is None:
        return None
    try:
        if isinstance(value, str):
            places = regions.read(value.strip(), "both", order_of)
        else:
            places = regions.regions_in(value, "any", order_of)
    except Unread:
        return None
    return places[0] if len(places) == 1 else None


def _text(given: Mapping[str, Any], roles: list[str]) -> str:
    value = next((given[role] for role in roles if role in given), "")
    text = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return "" if text.strip().casefold() in _TABLE["empty_texts"] else text


def _direction(given: Mapping[str, Any]) -> str:
    """The direction of a scroll, by its word or by the sign of its amount."""
    named = [_direction_of(str(given[role])) for role in ("direction", "to", "text") if role in given]
    amounts = [(given.get(role), words) for role, words in _AMOUNTS.items()]
    signed = [words[amount < 0] for amount, words in amounts if isinstance(amount, (int, float)) and amount]
    return next(filter(None, [*named, *signed]), "")
