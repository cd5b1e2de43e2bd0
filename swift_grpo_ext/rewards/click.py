"""Actions on a screen: the right kind of action, at the right place, with the right text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from swift_grpo_ext.rewards.answer import extract_answer, last_fenced
from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.frames import SIZES_COLUMN, Frame, convert, extent, image_aspect
from swift_grpo_ext.rewards.geometry import Box, relative_distance, strictly_inside
from swift_grpo_ext.rewards.gold import as_text, gold_value
from swift_grpo_ext.rewards.pointing import pointed_at
from swift_grpo_ext.rewards.regions import Region, check_gold_region, parse_regions, regions_in, values_in
from swift_grpo_ext.rewards.tokens import token_f1

GOLD = ("solution", "action", "answer")

_SYNONYMS = {
    "left_click": "click",
    "tap": "click",
    "left_single": "click",
    "left_double": "double_click",
    "doubleclick": "double_click",
    "right_single": "right_click",
    "rightclick": "right_click",
    "longpress": "long_press",
    "input": "type",
    "input_text": "type",
    "write": "type",
    "enter_text": "type",
    "swipe": "scroll",
    "hotkey": "key",
    "press": "key",
    "finished": "terminate",
    "complete": "terminate",
    "done": "terminate",
}
_ACTION_KEYS = ("action", "action_type", "type", "name")
_TEXT_KEYS = ("text", "content", "input_text", "value", "keys", "key", "direction", "app", "status")
_CALL = re.compile(r"(?:pyautogui\.)?([A-Za-z_]{2,24})\s{0,4}\(")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.){0,4096})\"|'((?:[^'\\]|\\.){0,4096})'", re.DOTALL)
_ESCAPED = re.compile(r"\\([nt\"'\\])")
_ESCAPES = {"n": "\n", "t": "\t"}
_X_Y = re.compile(r"x\s{0,4}=\s{0,4}([-+.\d]{1,16})\s{0,4},\s{0,4}y\s{0,4}=\s{0,4}([-+.\d]{1,16})")


@dataclass(frozen=True)
class Action:
    """One action on the screen.

    Attributes:
        kind: ``click``, ``type``, ``scroll`` ... in one spelling.
        target: Where, if it has a place: a point, or for a gold a box.
        text: What is typed, the direction, the key: "" if nothing.
    """

    kind: str
    target: Region | None = None
    text: str = ""


def parse_action(text: str) -> Action | None:
    """The last action of an answer: a JSON object, a call like ``click(x=10, y=20)``, or a bare point."""
    body = last_fenced(text).strip()
    values = values_in(body)
    mappings = [value for value in values if isinstance(value, Mapping)]
    if not mappings:  # a list of actions
        lists = [value for value in values if isinstance(value, list)]
        mappings = [value for inner in lists for value in inner if isinstance(value, Mapping)]
    if mappings:
        return _from_mapping(mappings[-1])
    calls = list(_CALL.finditer(body))
    if calls:
        return _from_call(calls[-1][1], body[calls[-1].end() :])
    regions = parse_regions(body, "both")
    return Action("click", regions[0]) if len(regions) == 1 else None


def _from_mapping(value: Mapping[str, Any]) -> Action | None:
    arguments = value.get("arguments")
    if isinstance(arguments, str):  # as text, the way the OpenAI format writes them
        arguments = next((inner for inner in values_in(arguments) if isinstance(inner, Mapping)), None)
    if isinstance(arguments, Mapping):  # a tool call: the action is inside, else the tool's name
        value = {**arguments, "action": arguments.get("action", value.get("name"))}
    kind = next((value[key] for key in _ACTION_KEYS if isinstance(value.get(key), str)), None)
    regions = regions_in(value, "both")
    target = regions[0] if len(regions) == 1 else None
    if kind is None:
        return Action("click", target) if target else None
    given = next((value[key] for key in _TEXT_KEYS if value.get(key) not in (None, "", [])), "")
    text = " ".join(map(str, given)) if isinstance(given, list) else str(given)
    return Action(_kind(kind), target, text)


def _from_call(name: str, arguments: str) -> Action:
    named = _X_Y.search(arguments)
    numbers = f"({named[1]}, {named[2]})" if named else f"({arguments.partition(')')[0]})"
    regions = parse_regions(numbers, "both")
    quoted = [_unescaped(double or single) for double, single in _QUOTED.findall(arguments)]
    kind = _kind(name)
    texts = [text for text in quoted if not parse_regions(text, "both")]  # not start_box='(10,20)'
    if not texts and kind == "type":
        texts = quoted[-1:]
    if not quoted and not regions:
        texts = [arguments.partition(")")[0].strip()]
    text = " ".join(texts if kind == "key" else texts[:1])
    return Action(kind, regions[0] if len(regions) == 1 else None, text)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), text)


def _kind(name: str) -> str:
    plain = name.strip().casefold().replace(" ", "_").replace("-", "_")
    return _SYNONYMS.get(plain, plain)


def _gold_action(columns: Columns) -> Action:
    gold = gold_value(columns, GOLD)
    action = parse_action(as_text(gold))
    if action is None:
        raise Unscorable(f"gold {gold!r:.80} is no action")
    if action.target is not None:
        check_gold_region(action.target)
    return action


def _gold_action_text(
    columns: Columns,
    *,
    frame: Frame = "pixel_resized",
    gold_frame: Frame | None = None,
    image_index: int = 0,
    **_: Any,
) -> str:
    gold = _gold_action(columns)
    written: dict[str, Any] = {"action": gold.kind}
    if gold.target is not None:
        source = gold_frame or frame
        place = convert(pointed_at(gold.target), source, frame, columns, image_index)
        written["coordinate"] = list(place)
    if gold.text:
        written["text"] = gold.text
    return json.dumps(written, ensure_ascii=False)


@reward(gold=GOLD, reads=(SIZES_COLUMN,), gold_text=_gold_action_text)
def click(
    completion: str,
    columns: Columns,
    *,
    radius: Annotated[float, Field(gt=0, le=1)] = 0.05,
    frame: Frame = "pixel_resized",
    gold_frame: Frame | None = None,
    image_index: int = 0,
) -> float:
    """One action on a screen, 0..1: the right kind, at the right place, with the right text.

    Another kind of action than the gold's is 0. A place counts fully strictly inside the gold's box; if the
    gold is a point it counts ``1 - distance / radius``, the distance being relative to the image's diagonal.
    Text (what is typed, a key, a direction) counts with its token F1. An action with both multiplies them.

    Args:
        radius: Distance, as a fraction of the image's diagonal, from which on a point counts nothing.
        frame: Coordinate frame that the model answers in.
        gold_frame: Coordinate frame of the gold column; the same as `frame` if not given.
        image_index: Which of the row's images is the screen, from 0.

    Gold:
        ``solution`` (or ``action``, ``answer``): ``{"action": "click", "coordinate": [x, y]}`` or with
        ``"bbox"``; ``{"action": "type", "text": "..."}``; a call such as ``click(x=10, y=20)``; a tool call
        with ``arguments``; a bare point or box stands for a click.

    None:
        No gold action, one whose place no answer could meet (a box without area, NaN), or a gold point
        without ``image_sizes``, which the diagonal needs.

    Rises with:
        Nearness to the gold point, token F1 of the text.

    Gaming:
        - Several actions: the last one counts (test_the_last_action_counts).
        - Several coordinates in one action: none counts (test_several_places_in_one_action_are_none).
        - ``eval`` of the answer: nothing is ever evaluated (test_nothing_is_evaluated).

    Frame:
        Declared by `frame` and `gold_frame`.

    Source:
        Click accuracy of ScreenSpot (arXiv 2401.10935); action type and text as in AITW-style GUI evaluation.
    """
    gold = _gold_action(columns)
    nearness = _place(gold.target, columns, radius, frame, gold_frame or frame, image_index)
    answer = extract_answer(completion)
    action = parse_action(answer) if answer else None
    if action is None or action.kind != gold.kind:
        return 0.0
    return nearness(action.target) * (token_f1(action.text, gold.text) if gold.text else 1.0)


def _place(
    gold: Region | None, columns: Columns, radius: float, frame: Frame, source: Frame, image_index: int
) -> Callable[[Region | None], float]:
    """How well a predicted place meets the gold's, as a function of the prediction.

    Raises:
        Unscorable: The row lacks the image's size, and the gold needs it.
    """
    if gold is None:
        return lambda target: 1.0
    if gold.box is not None:
        box = _box(convert(gold.box, source, frame, columns, image_index))
        return lambda target: float(target is not None and strictly_inside(pointed_at(target), box))
    wanted = convert(pointed_at(gold), source, "norm1", columns, image_index)
    width, height = extent(frame, columns, image_index)
    aspect = image_aspect(columns, image_index)

    def nearness(target: Region | None) -> float:
        if target is None:
            return 0.0
        x, y = pointed_at(target)
        distance = relative_distance((x / width, y / height), (wanted[0], wanted[1]), aspect)
        return max(0.0, 1.0 - distance / radius)

    return nearness


def _box(values: tuple[float, ...]) -> Box:
    left, top, right, bottom = values
    return left, top, right, bottom
