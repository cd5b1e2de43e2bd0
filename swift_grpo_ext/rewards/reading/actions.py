"""Reading an action on a screen: JSON, a call such as ``click(start_box='(1,2)')``, or words with a place."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from swift_grpo_ext.rewards.reading.action_space import (
    BUTTONS,
    DIRECTIONS,
    KINDS,
    Action,
    argument_of,
    calls_in,
    direction_of,
    word_of,
)
from swift_grpo_ext.rewards.reading.answer import last_fenced
from swift_grpo_ext.rewards.reading.assertion import asserted
from swift_grpo_ext.rewards.reading.boxes import parse_regions, stated_regions
from swift_grpo_ext.rewards.reading.json_boxes import regions_in
from swift_grpo_ext.rewards.reading.json_text import Json, values_in
from swift_grpo_ext.rewards.reading.region import OrderOf, Region, as_corners
from swift_grpo_ext.rewards.reading.schema import any_case
from swift_grpo_ext.rewards.reading.tool_calls import tool_calls
from swift_grpo_ext.rewards.reading.words import ACTIONS, DOUBTS

# "action: click"
_LINE = re.compile(r"(?:^|\t|\n)\s{0,8}[-*]?\s{0,4}([A-Za-z_]{1,24})\s{0,4}[:：][ \t]{0,8}([^\t\n]{1,512})")
# "long press"
_VERB = any_case(
    "|".join(
        rf"(?<![A-Za-z_</]){word.replace('_', '[ _]')}(?![A-Za-z_])" if word.isascii() else word
        for word in sorted(KINDS, key=len, reverse=True)
    )
)
MAX_WORDS = 4_000  # characters at the end of an answer in which an action in words is looked for
LONG_PRESS = 500  # milliseconds

# "\"": text of the action's own may say anything
_QUOTED = re.compile(r"[\"“{]|[(=\[,]\s?'")


def parse_action(text: str, order_of: OrderOf = as_corners) -> Action | None:
    """The last action of an answer: a tool call, JSON, a call, lines such as ``action: click``, words.

    What stands behind "Thought:" is none, and neither is an action that is denied ("do not click").
    """
    body = _without_thought(last_fenced(text).strip())
    if ACTIONS.asked_at_end.search(body):
        return None
    if not _QUOTED.search(body):
        body = asserted(body)
    if called := tool_calls(body):
        return action_of(called[-1]._asdict(), order_of)
    values = values_in(body)
    listed = [inner for value in values if isinstance(value, list) for inner in value]
    calls = [call for start, call in calls_in(body) if not _is_denied(body, start)]
    for written in (values, listed, calls):
        if mappings := [value for value in written if isinstance(value, Mapping)]:
            return action_of(mappings[-1], order_of)
    lines = {name: value.strip() for name, value in _LINE.findall(body)}
    if any(argument_of(name) == "action" and word_of(value) in KINDS for name, value in lines.items()):
        fields = {name: value for name, value in lines.items() if argument_of(name)}
        return action_of(fields, order_of)
    return _in_words(body[-MAX_WORDS:], order_of)


def _without_thought(text: str) -> str:
    """The text from its last "Action:" on; without one, the text without the lines of thought."""
    if not ACTIONS.thought.search(text):
        return text
    acted = list(ACTIONS.acted.finditer(text))
    return text[acted[-1].start() :].strip() if acted else ACTIONS.thought.sub("\n", text).strip()


def _is_denied(text: str, start: int) -> bool:
    """Whether what starts there is denied, or asked for: "do not click", "should I click"."""
    before = text[max(0, start - 96) : start]
    return DOUBTS.negated.search(before) is not None or ACTIONS.asked.search(before) is not None


def action_of(value: Mapping[str, Json], order_of: OrderOf = as_corners) -> Action | None:
    """The action that a mapping holds: a flat one, a tool call, or ``{"TYPE": "text"}``."""
    given = _by_role(value)
    inner = given.get("arguments")
    if isinstance(inner, Mapping):  # a tool call: the action is inside, else the tool's name
        outer = {"action": given["action"]} if "action" in given else {}
        given = outer | _by_role(inner)
    elif isinstance(nested := given.get("action"), Mapping):
        given = _by_role(nested)
    if word_of(str(given.get("action", ""))) not in KINDS:
        given = _named_by_key(value) or given
    name = given.get("action")
    if isinstance(name, str):
        return _completed(*KINDS.get(word_of(name), (word_of(name), "")), given, *_ends(given, order_of))
    place, _ = _ends(given, order_of)
    return Action("click", place, unknown=given.get("unknown", ())) if place and name is None else None


def _by_role(value: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a mapping gives, by what they hold; of several for one, the first."""
    given: dict[str, Any] = {}
    unknown = []
    for key, inner in value.items():
        if inner in (None, "", [], (), {}):
            continue
        role = argument_of(str(key))
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
    start = given.get("place") or {"x": given.get("x"), "y": given.get("y")}
    ends = (given.get("end"), given.get("to"), {"x": given.get("x2"), "y": given.get("y2")})
    return _one(start, order_of), next(filter(None, (_one(end, order_of) for end in ends)), None)


def _one(value: Json, order_of: OrderOf) -> Region | None:
    """The only place of a text, a list or a mapping."""
    if isinstance(value, str):
        regions = parse_regions(value, "both", order_of)
    else:
        place: Any = value if isinstance(value, Mapping) else {"box": value}
        regions = regions_in(place, "both", order_of)
    return regions[0] if len(regions) == 1 else None


def _completed(
    kind: str, own_text: str, given: Mapping[str, Any], place: Region | None, end: Region | None
) -> Action:
    if kind == "click":
        times = str(given.get("times", given.get("amount_up")))
        button = str(given.get("button", "")).casefold()
        kind = "drag" if end else ACTIONS.times.get(times) or BUTTONS.get(button, kind)
    if kind in ("scroll", "hscroll", "swipe"):
        text = own_text or _direction(kind, given)
        kind = "scroll" if kind == "hscroll" else kind
        end = None if text else end
    else:
        text = own_text or _text(given, ACTIONS.text_of.get(kind, "text").split())
        kind = "click" if kind == "key" and place and not text else kind  # press(10, 20)
    seconds = given.get("seconds") if kind == "wait" else None
    number = float(seconds) if isinstance(seconds, (int, float)) and 0 <= seconds < 1e6 else None
    return Action(kind, place, text, end, number, given.get("unknown", ()))


def _text(given: Mapping[str, Any], roles: list[str]) -> str:
    value = next((given[role] for role in roles if role in given), "")
    text = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return "" if text.strip().casefold() in ACTIONS.empty_texts else text


def _direction(kind: str, given: Mapping[str, Any]) -> str:
    """The direction of a scroll, by its word or by the sign of its amount."""
    texts = (given.get(role) for role in ("direction", "to", "text"))
    if named := next(filter(None, (direction_of(text) for text in texts if isinstance(text, str))), ""):
        return named
    amounts = {"amount_up": "up down", "amount_down": "down up", "amount_right": "right left"}
    if kind == "hscroll":
        amounts["amount_up"] = "right left"
    for role, words in amounts.items():
        amount = given.get(role)
        if isinstance(amount, (int, float)) and amount:
            return words.split()[amount < 0]
    return ""


def _in_words(body: str, order_of: OrderOf) -> Action | None:
    """``CLICK <point>[[1, 2]]</point>``, ``TYPE [hello]``, ``scroll down``, a bare place."""
    regions = [replace(region, label="") for region in stated_regions(body, "both", order_of)]
    named = [verb for verb in _VERB.finditer(body) if word_of(verb[0].casefold()) in KINDS]
    verbs = [verb for verb in named if not _is_denied(body, verb.start())]
    if not verbs:
        return Action("click", regions[0]) if len(regions) == 1 and not named else None
    number = re.search(r"\d|\Z", body)
    before = [verb for verb in verbs if number and verb.start() < number.start()]
    verb = (before if before and len(regions) == 1 else verbs)[-1]
    rest = body[verb.end() :]
    kind, own_text = KINDS[word_of(verb[0].casefold())]
    if kind == "key" and len(regions) == 1:
        kind = "click"  # "press the button at (10, 20)"
    moves = len(regions) == 2 and kind in ("scroll", "swipe", "drag")
    place, end = regions if moves else (regions[0] if len(regions) == 1 else None, None)
    given: dict[str, Json] = {}
    if kind in ("scroll", "swipe") and not moves:
        words = re.findall(r"[A-Za-z]+|[上下左右]", (body[: verb.start()][-2:] + " " + rest[:48]).casefold())
        given["direction"] = next((word for word in words if word in DIRECTIONS), None)
    elif kind in ("type", "select", "open_app", "key", "answer"):
        given["text"] = rest.strip(" :：.。\n")[:512]
    return _completed(kind, own_text, given, place, end)
