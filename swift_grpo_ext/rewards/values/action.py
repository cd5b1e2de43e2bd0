"""One action on a screen: JSON, a call, a tool call, or a bare place, which is a click.

>>> [read(text).kind for text in (
...     '{"action": "left_click", "coordinate": [1, 2]}', "[{'action': 'click', 'point': [1, 2]}]",
...     "pyautogui.click(x=1, y=2)", "click(start_box='(1,2)')", "CLICK <point>[[1, 2]]</point>", "[1, 2]",
...     '{"name": "computer_use", "arguments": {"coordinate": [1, 2]}}')] == ["click"] * 7
True
>>> [read(text).text for text in ("scroll(direction='down')", "type(content='hello')", "hotkey('ctrl', 'c')")]
['down', 'hello', 'ctrl c']

The names of actions and arguments are those of ``actions.json``. Two different actions are none, and so is
one beside other words. Nothing is ever run.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swift_grpo_ext.rewards.contract import Unread
from swift_grpo_ext.rewards.json_text import Json, decoded, first_value, literal, strict
from swift_grpo_ext.rewards.values import regions, tool_call
from swift_grpo_ext.rewards.values.call import MAX_CALL, call_in
from swift_grpo_ext.rewards.values.region import OrderOf, Region, as_corners, pointed_at

GRAMMAR = "action (JSON with action and coordinate, or a call such as click(x=1, y=2))"
_TABLE = json.loads((Path(__file__).parent / "actions.json").read_text(encoding="utf-8"))


def _by_word(listed: Mapping[str, list[str]]) -> dict[str, str]:
    return {word: meaning for meaning, words in listed.items() for word in words}


# Word to the kind of action and the text that it says by itself: "scroll_up" to scroll, up.
KINDS = {
    word: (meaning.partition(" ")[0], meaning.partition(" ")[2])
    for word, meaning in _by_word(_TABLE["kinds"]).items()
}
OPPOSITE: dict[str, str] = _TABLE["opposite"]
_ARGUMENTS = {name.replace("_", ""): role for name, role in _by_word(_TABLE["arguments"]).items()}
_KEYS = _by_word(_TABLE["keys"])
_STATUSES = _by_word(_TABLE["statuses"])
_DIRECTIONS = _by_word(_TABLE["directions"])
_BUTTONS = _by_word(_TABLE["buttons"])
_AMOUNTS = {"amount_up": ("up", "down"), "amount_down": ("down", "up"), "amount_right": ("right", "left")}
LONG_PRESS = 500  # milliseconds

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
    seconds: float | None = None  # how long it waits
    unknown: tuple[str, ...] = ()  # names of arguments that are not known

    @property
    def towards(self) -> str:
        """The direction of a swipe that is given by its two ends, "" for any other action."""
        if self.target is None or self.end is None or self.text:
            return ""
        (x1, y1), (x2, y2) = pointed_at(self.target), pointed_at(self.end)
        right, down = x2 - x1, y2 - y1
        if abs(right) > abs(down):
            return "right" if right > 0 else "left"
        return "down" if down > 0 else "up" if down < 0 else ""

    def __str__(self) -> str:
        places = [str(pointed_at(place)) for place in (self.target, self.end) if place]
        return " ".join(filter(None, (self.kind, *places, self.text)))


def read(text: str, order_of: OrderOf = as_corners) -> Action:
    """The action that a text is.

    Raises:
        Unread: It is none, or several.
    """
    found = [action for value in _values(text) if (action := action_of(value, order_of))]
    if not found:
        try:
            (place,) = regions.read(text, "both", order_of)
        except (Unread, ValueError):
            raise Unread(text, GRAMMAR) from None
        return Action("click", replace(place, label=""))
    if any(action != found[0] for action in found):
        raise Unread(f"{len(found)} different actions: {text[:80]!r}")
    return found[0]


def _values(text: str) -> list[Mapping[str, Json]]:
    """What a text gives as mappings: its tool calls, its JSON, its call."""
    if text[:1] in ("{", "["):
        value = next(iter(decoded(text, first_value, literal)), None)
        items = value if isinstance(value, list) else [value]
        return [item for item in items if isinstance(item, Mapping)] if all(items) else []
    if called := tool_call.read_all(text):
        return [call._asdict() for call in called]
    if (call := call_in(text)) is not None:
        return [
            {"action": call.name}
            | call.named
            | _positional(KINDS.get(word_of(call.name), ("", ""))[0], call.bare)
        ]
    worded = _WORDED.fullmatch(text[:MAX_CALL])
    if worded is None or word_of(worded[1]) not in KINDS:
        return []
    if worded[3] and _one(worded[3], as_corners) is None:
        return []
    return [{"action": worded[1], "coordinate" if worded[3] else "text": worded[3] or worded[2] or ""}]


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
    """The direction that a text names alone, "" if none or several."""
    named = {
        _DIRECTIONS[word] for word in re.findall(r"[a-z]+|[上下左右]", text.casefold()) if word in _DIRECTIONS
    }
    return named.pop() if len(named) == 1 else ""


def _positional(kind: str, bare: list[Json]) -> dict[str, Json]:
    """Arguments without names: places, numbers as x and y, texts."""
    numbers = [value for value in bare if isinstance(value, (int, float))]
    texts = [value for value in bare if isinstance(value, str)]
    places = [value for value in bare if isinstance(value, list)]
    arguments: dict[str, Json] = dict(zip(("coordinate", "coordinate2"), places, strict=False))
    if len(numbers) == 1 and kind in ("scroll", "hscroll", "wait"):
        arguments["seconds" if kind == "wait" else "pixels"] = numbers[0]
    elif len(numbers) == 4 and kind in ("drag", "swipe"):
        arguments |= {"start": numbers[:2], "end": numbers[2:]}
    elif len(numbers) in (2, 4):
        arguments["coordinate" if len(numbers) == 2 else "bbox"] = numbers
    if texts:
        arguments |= {"keys": " ".join(texts)} if kind == "key" else {"text": texts[0]}
    return arguments


def action_of(value: Mapping[str, Json], order_of: OrderOf = as_corners) -> Action | None:
    """The action that a mapping holds: a flat one, a tool call, or ``{"TYPE": "text"}``."""
    given = _by_role(value)
    inner = given.get("arguments")
    inner = next(iter(decoded(inner, strict)), inner) if isinstance(inner, str) else inner
    inner = inner[0] if isinstance(inner, list) and len(inner) == 1 else inner
    if isinstance(inner, Mapping):  # a tool call: the action is inside, else the tool's name
        given = {"action": given["action"]} | _by_role(inner) if "action" in given else _by_role(inner)
    elif isinstance(nested := given.get("action"), Mapping):
        given = _by_role(nested)
    if word_of(str(given.get("action", ""))) not in KINDS:
        given = _named_by_key(value) or given
    name = given.get("action")
    start, end = _ends(given, order_of)
    if not isinstance(name, str) or (word_of(name) not in KINDS and "arguments" in _by_role(value)):
        # A point alone, also as what a tool such as computer_use is told.
        return Action("click", start, unknown=given.get("unknown", ())) if start else None
    kind, own_text = KINDS.get(word_of(name), (word_of(name), ""))
    return _completed(kind, own_text, given, start, end)


def _by_role(value: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a mapping gives, by what they hold; of several for one, the first."""
    given: dict[str, Any] = {}
    unknown = []
    for key, inner in value.items():
        if inner in (None, "", [], (), {}):
            continue
        role = _ARGUMENTS.get("".join(filter(str.isalnum, str(key)[:64].casefold())), "")
        if not role:
            unknown.append(str(key)[:40])
        elif role == "action" and word_of(str(given.get(role, ""))) not in KINDS:
            given[role] = inner  # {"type": "function", "name": "click"}: the one that is an action
        else:
            given.setdefault(role, inner)
    if "start" in given:
        given = {"end": given.get("place"), **given, "place": given["start"]}
    if isinstance(path := given.get("path"), list):
        given |= {"place": path[0], "end": path[-1]}
    return given | ({"unknown": tuple(unknown)} if unknown else {})


def _named_by_key(value: Mapping[str, Json]) -> dict[str, Json]:
    """``{"TYPE": "text"}``, ``{"POINT": [1, 2], "to": "down"}``: the key is the action."""
    for key, inner in value.items():
        if not str(key).isupper() or (word := word_of(str(key))) not in KINDS:
            continue
        given = _by_role({name: part for name, part in value.items() if name != key})
        role = "place" if isinstance(inner, (list, tuple)) else "text"
        pressed = given.get("seconds")  # AgentCPM-GUI: milliseconds that a point is pressed for
        if role == "place" and "to" in given:
            word = "swipe"
        elif role == "place" and isinstance(pressed, (int, float)) and pressed >= LONG_PRESS:
            word = "long_press"
        return given | {"action": word, role: inner}
    return {}


def _ends(given: Mapping[str, Any], order_of: OrderOf) -> tuple[Region | None, Region | None]:
    """Where the action is or starts, and where it ends; None if nowhere, or at several places."""
    start = given.get("place") or _pair(given, "x", "y")
    ends = (given.get("end"), given.get("to"), _pair(given, "x2", "y2"))
    return _one(start, order_of), next(filter(None, (_one(end, order_of) for end in ends)), None)


def _pair(given: Mapping[str, Any], x: str, y: str) -> list[Any]:
    return [given[x], given[y]] if x in given and y in given else []


def _one(value: Json, order_of: OrderOf) -> Region | None:
    """The only place of a text, a list or a mapping."""
    if not value:
        return None
    try:
        if isinstance(value, str):
            found = regions.read(value.strip(), "both", order_of)
        else:
            found = regions.regions_in(
                value if isinstance(value, Mapping) else {"box": value}, "both", order_of
            )
    except Unread:
        return None
    return found[0] if len(found) == 1 else None


def _completed(
    kind: str, own_text: str, given: Mapping[str, Any], place: Region | None, end: Region | None
) -> Action:
    if kind == "click":
        times = str(given.get("times", given.get("amount_up")))
        button = str(given.get("button", "")).casefold()
        kind = "drag" if end else _TABLE["times"].get(times) or _BUTTONS.get(button, kind)
    if kind in ("scroll", "hscroll", "swipe"):
        text = own_text or _direction(kind, given)
        kind = "scroll" if kind == "hscroll" else kind
        end = None if text else end
    else:
        text = own_text or _text(given, _TABLE["text_of"].get(kind, "text").split())
        kind = "click" if kind == "key" and place and not text else kind  # press(10, 20)
    seconds = given.get("seconds") if kind == "wait" else None
    waited = float(seconds) if isinstance(seconds, (int, float)) and 0 <= seconds < 1e6 else None
    return Action(kind, place, text, end, waited, given.get("unknown", ()))


def _text(given: Mapping[str, Any], roles: list[str]) -> str:
    value = next((given[role] for role in roles if role in given), "")
    text = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return "" if text.strip().casefold() in _TABLE["empty_texts"] else text


def _direction(kind: str, given: Mapping[str, Any]) -> str:
    """The direction of a scroll, by its word or by the sign of its amount."""
    texts = (given.get(role) for role in ("direction", "to", "text"))
    if named := next(filter(None, (_direction_of(text) for text in texts if isinstance(text, str))), ""):
        return named
    amounts = _AMOUNTS | ({"amount_up": ("right", "left")} if kind == "hscroll" else {})
    for role, words in amounts.items():
        amount = given.get(role)
        if isinstance(amount, (int, float)) and amount:
            return words[amount < 0]
    return ""
