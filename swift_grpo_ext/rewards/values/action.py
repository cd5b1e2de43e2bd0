"""One action on a screen: JSON, a call, a tool call, or a bare place, which is a click.

>>> [read(text).kind for text in (
...     '{"action": "left_click", "coordinate": [1, 2]}', "[{'action': 'click', 'point': [1, 2]}]",
...     "pyautogui.click(x=1, y=2)", "click(start_box='(1,2)')", "[1, 2]",
...     '{"name": "computer_use", "arguments": {"coordinate": [1, 2]}}')] == ["click"] * 6
True
>>> [read(text).text for text in ("scroll(direction='down')", "type(content='hello')", "hotkey('ctrl', 'c')")]
['down', 'hello', 'ctrl c']

The names of actions and arguments are those of ``actions.json``; other arguments are ignored. Two
different actions do not count, nor does one beside other words. Nothing is ever run.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swift_grpo_ext.rewards.contract import Unread
from swift_grpo_ext.rewards.json_text import Json, decoded, first_value, literal, strict
from swift_grpo_ext.rewards.values import regions, tool_call
from swift_grpo_ext.rewards.values.call import call_in
from swift_grpo_ext.rewards.values.region import OrderOf, Region, as_corners, pointed_at

GRAMMAR = "action (JSON with action and coordinate, or a call such as click(x=1, y=2))"
_TABLE = json.loads((Path(__file__).parent / "actions.json").read_text(encoding="utf-8"))


def _by_word(listed: Mapping[str, list[str]]) -> dict[str, str]:
    return {word.replace("_", ""): meaning for meaning, words in listed.items() for word in words}


_KINDS = _by_word(_TABLE["kinds"])  # word to the kind of action, and the text that it says by itself
_ROLES = _by_word(_TABLE["arguments"])
_KEYS = _by_word(_TABLE["keys"])
_STATUSES = _by_word(_TABLE["statuses"])
_DIRECTIONS = _by_word(_TABLE["directions"])
_BUTTONS: dict[str, str] = _TABLE["buttons"]
OPPOSITE: dict[str, str] = _TABLE["opposite"]


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
    place = None if values else _one(text, order_of)
    if place is not None:
        actions = [Action("click", replace(place, label=""))]
    if not actions:
        raise Unread(text, GRAMMAR)
    if any(action != actions[0] for action in actions):
        raise Unread(f"{len(actions)} different actions: {text[:80]!r}")
    return actions[0]


def _values(text: str) -> list[Mapping[str, Json]]:
    """The mappings in a text: its JSON, its tool calls, or its call."""
    if text[:1] in ("{", "["):
        value = decoded(text, first_value, literal)
        items = value if isinstance(value, list) else [value]
        return [item for item in items if isinstance(item, Mapping)]
    if called := tool_call.read_all(text):
        return [call._asdict() for call in called]
    call = call_in(text)
    if call is None:
        return []
    numbers = [value for value in call.bare if isinstance(value, (int, float))]
    words = [value for value in call.bare if isinstance(value, str)]
    # scroll(-5), click(1, 2), drag(1, 2, 3, 4)
    names = ("x", "y", "x2", "y2") if len(numbers) > 1 else ("pixels",)
    positional = dict(zip(names, numbers, strict=False))
    return [{"action": call.name, "text": " ".join(words), **positional, **call.named}]


def keys_of(text: str) -> frozenset[str]:
    """The keys of a combination: ``Ctrl+C``, ``ctrl c``."""
    return frozenset(_KEYS.get(key, key) for key in re.split(r"[\s+,_-]+", text.strip().casefold()))


def status_of(text: str) -> str:
    """``success``, ``failure``, or "" for a text that is neither."""
    return _STATUSES.get(text.strip().casefold() or "success", "")


def action_of(value: Mapping[str, Any], order_of: OrderOf = as_corners) -> Action | None:
    """The action that a mapping holds, flat or as the arguments of a tool; a place alone is a click.

    Raises:
        Unread: It names two places for one.
    """
    given = _by_role(value)
    start = _place(given["place"], given["x"], given["y"], order_of)
    end = _place(given["end"], given["x2"], given["y2"], order_of)
    words = [regions.plain_key(name.rpartition(".")[2]) for name in given["action"] + given["tool"]]
    known = [_KINDS[word] for word in words if word in _KINDS]
    if not (known or given["action"]):
        # A place alone, also as the arguments of a tool such as computer_use.
        return Action("click", start) if start else None
    kind, _, text = (known or words)[0].partition(" ")
    if kind == "click":
        kind = next((_BUTTONS[button] for button in map(str, given["button"]) if button in _BUTTONS), kind)
    if kind not in ("scroll", "swipe"):
        return Action(kind, start, text or _text(given, kind), end)
    text = text or _direction(given)
    return Action(kind, start, text, None if text else end)


def _by_role(value: Mapping[str, Any]) -> defaultdict[str, list[Any]]:
    """The values of a mapping, and of the arguments in it, by role."""
    given: defaultdict[str, list[Any]] = defaultdict(list)
    pairs = list(value.items())
    for key, inner in pairs:  # which grows while it is read
        role = _ROLES.get(regions.plain_key(str(key)), "")
        arguments = decoded(inner, strict) if role == "arguments" else None
        if isinstance(arguments, Mapping):
            pairs.extend(arguments.items())
        is_code = role in ("action", "tool") and not isinstance(inner, str)  # AITW's codes are not names
        if (inner or inner == 0) and not is_code:
            given[role].append(inner)
    return given


def _place(written: list[Json], xs: list[Json], ys: list[Json], order_of: OrderOf) -> Region | None:
    """The place that is written under a key of its own, or as x and y; one of several points or boxes.

    Raises:
        Unread: Two differ, and both are boxes or both points.
    """
    named = [{"x": x, "y": y} for x, y in zip(xs, ys, strict=False)]
    places = [place for each in (*written, *named) if (place := _one(each, order_of))]
    for place in places:
        if place.is_box is places[0].is_box and place != places[0]:
            raise Unread(f"two places of one action, {places[0].place} and {place.place}")
    return places[0] if places else None


def _one(value: Json, order_of: OrderOf) -> Region | None:
    """The only place of a text, a list or a mapping; None if it holds none or several."""
    try:
        places = regions.read(value.strip() if isinstance(value, str) else value, "both", order_of)
    except Unread:
        return None
    return places[0] if len(places) == 1 else None


def _text(given: defaultdict[str, list[Any]], kind: str) -> str:
    roles = _TABLE["text_of"].get(kind, "text").split()
    value = next((value for role in roles for value in given[role]), "")
    text = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return "" if text.strip().casefold() in _TABLE["empty_texts"] else text


def _direction(given: defaultdict[str, list[Any]]) -> str:
    """The direction of a scroll, by its word or by the sign of its pixels."""
    words = [str(word) for role in ("direction", "text") for word in given[role]]
    named = [_DIRECTIONS.get(word.strip().casefold()) for word in words]
    amounts = [amount for amount in given["pixels"] if isinstance(amount, (int, float)) and amount]
    signed = ["up" if amount > 0 else "down" for amount in amounts]
    return next(filter(None, [*named, *signed]), "")
