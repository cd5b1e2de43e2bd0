"""Actions on a screen: the right kind of action, at the right place, with the right text."""

import json
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field

from swift_grpo_ext.rewards.contract import (
    Columns,
    Outcome,
    Unscorable,
    as_gold,
    gold_value,
    restored,
    reward,
)
from swift_grpo_ext.rewards.gold.columns import as_text
from swift_grpo_ext.rewards.gold.frames import SIZES_COLUMN, extent, image_aspect
from swift_grpo_ext.rewards.gold.geometry import strictly_inside
from swift_grpo_ext.rewards.gold.regions import PLACES, Places, converted
from swift_grpo_ext.rewards.grounding import in_order
from swift_grpo_ext.rewards.place import answer_of, unwrapped
from swift_grpo_ext.rewards.values.action import OPPOSITE, Action, keys_of, read, status_of
from swift_grpo_ext.rewards.values.region import Region, pointed_at
from swift_grpo_ext.rewards.values.text import token_f1

GOLD = ("solution", "action", "answer", "gt_action", "operation")
_BESIDE = {"gt_bbox": "box", "gt_input_text": "text"}  # columns of UI-R1 and GUI-R1, beside ``gt_action``
_MOVES = ("scroll", "swipe")
# Kinds whose texts are compared exactly, in this form; texts of other kinds count by token F1.
_AS_COMPARED: dict[str, Callable[[str], Any]] = {
    "key": keys_of,
    "open_app": lambda text: "".join(filter(str.isalnum, text.casefold())),
}
_NEED_A_PLACE = ("click", "long_press", "hover", "drag")  # also ``double_click``


@lru_cache(maxsize=1024)
def _read_gold(gold: str, places: Places) -> Action:
    """A gold as an action, read once for all completions of a group."""
    return as_gold(read, gold, places.in_gold)


def _gold_action(columns: Columns, places: Places) -> Action:
    """The row's action, in the frame of the answers.

    Raises:
        Unscorable: The gold is not an action, or a part of it is unknown or missing.
    """
    gold = gold_value(columns, GOLD)
    beside = {
        role: restored(columns[name])
        for name, role in _BESIDE.items()
        # GUI-R1 writes [-100, -100] for no place
        if columns.get(name) is not None and "[-" not in str(columns[name])
    }
    if beside and isinstance(gold, str) and not gold.startswith("{"):
        gold = {"action": gold, **beside}
    action = _read_gold(unwrapped(as_text(gold)), places)
    source = places.gold_frame or places.frame
    target, end = (
        place and converted([place], source, places.frame, columns, places)[0]
        for place in (action.target, action.end)
    )
    action = Action(action.kind, target, action.text, end)
    if action.kind in _MOVES and not (action.text or action.towards):
        raise Unscorable(f"gold {gold!r:.80} has no direction")
    if action.kind.endswith(_NEED_A_PLACE) and action.target is None:
        raise Unscorable(f"gold {gold!r:.80} has no place, or several")
    return action


def _gold_action_text(columns: Columns, *, places: Places = PLACES, **_: object) -> str:
    gold = _gold_action(columns, places)
    ends = {"coordinate": gold.target, "coordinate2": gold.end}
    written = {key: in_order(pointed_at(place.place), places) for key, place in ends.items() if place}
    text = {"text": gold.text} if gold.text else {}
    return json.dumps({"action": gold.kind, **written, **text}, ensure_ascii=False)


@reward(
    gold=GOLD,
    reads=(SIZES_COLUMN, *_BESIDE),
    gold_text=_gold_action_text,
)
def click(
    completion: str,
    columns: Columns,
    *,
    radius: Annotated[float, Field(gt=0, le=1)] = 0.05,
    places: Places = PLACES,
) -> Outcome:
    """One action on a screen, 0..1: the right kind, at the right place, with the right text.

    Another kind of action than the gold's is 0; what different action spaces call it does not matter. A place
    counts fully strictly inside the gold's box; if the gold is a point it counts ``1 - distance / radius``,
    the distance being relative to the image's diagonal. A drag has two places. Typed text counts with its
    token F1; keys, the app, the direction of a scroll (by its word, by the sign of its amount, or by the two
    ends of a swipe, which moves the page the other way) and the status at the end must be the gold's.
    The scores of all parts that the gold has are multiplied.

    Args:
        radius: Distance, as a fraction of the image's diagonal, from which on a point counts nothing.
    Gold: ``solution`` (or ``action``, ``answer``): ``{"action": "click", "coordinate": [x, y]}`` or with
        ``"bbox"``; ``{"action": "type", "text": "..."}``; AndroidControl's ``action_type``, ``x``, ``y``,
        ``app_name``; a call such as ``click(x=10, y=20)``; a tool call with ``arguments``; a bare point or
        box stands for a click. UI-R1 and GUI-R1: ``gt_action`` with ``gt_bbox`` and ``gt_input_text``.
    Raises:
        Unscorable: No gold action, one whose place no answer could meet (a
            box without area, NaN), or a gold point without ``image_sizes``, which the diagonal needs.
    Rises with: Nearness to the gold point, token F1 of the text.
    Gaming:
        - Several different actions: none counts (test_several_actions_are_none).
        - Several coordinates in one action: none counts (test_several_places_in_one_action_are_none).
        - ``eval`` of the answer: nothing is ever evaluated (test_nothing_is_evaluated).
    Frame: Declared by `frame` and `gold_frame`.
    Source: Click accuracy of ScreenSpot (arXiv 2401.10935); action type and text as in AITW-style GUI
        evaluation.
    Example:
        >>> from swift_grpo_ext import get_reward
        >>> gold = {"action": "click", "bbox": [100, 100, 200, 150]}
        >>> get_reward("ext_click")("click(150, 120)", {"solution": gold})
        1.0
    """
    gold = _gold_action(columns, places)
    _nearness(gold.target, gold.target, columns, radius, places)  # a row without sizes is not scored
    action = read(answer_of(completion, "located"), places.in_answers)
    return Outcome.of(_score(action, gold, columns, radius, places), action, gold)


def _score(action: Action, gold: Action, columns: Columns, radius: float, places: Places) -> float:
    start = _nearness(gold.target, action.target, columns, radius, places)
    end = _nearness(gold.end, action.end, columns, radius, places)
    if gold.kind in _MOVES:
        right = action.kind in _MOVES and _same_direction(action, gold)
        return start if right and gold.text else float(right)
    if action.kind != gold.kind:
        return 0.0
    return start * end * _same_text(action, gold)


def _same_direction(action: Action, gold: Action) -> bool:
    """True if both move the same way; the finger of a swipe moves against the page."""
    answered = action.text or action.towards
    expected = gold.text or gold.towards
    worded = gold.kind if action.towards else action.kind
    if bool(action.towards) != bool(gold.towards) and worded == "scroll":
        expected = OPPOSITE.get(expected, "")
    return bool(answered) and answered == expected


def _same_text(action: Action, gold: Action) -> float:
    if gold.kind == "terminate":
        expected = status_of(gold.text)
        # A final message instead of a status counts as success.
        same = (status_of(action.text) or "success") == expected
        return float(same) if expected else token_f1(action.text, gold.text)
    if not gold.text:
        return 1.0
    if gold.kind in _AS_COMPARED:
        answered, expected = (_AS_COMPARED[gold.kind](side.text) for side in (action, gold))
        return float(answered == expected)
    return token_f1(action.text, gold.text)


def _nearness(
    gold: Region | None, target: Region | None, columns: Columns, radius: float, places: Places
) -> float:
    """How well a predicted place meets the gold's, 0..1."""
    if gold is None:
        return 1.0
    if gold.is_box:
        return float(target is not None and strictly_inside(target.place, gold.place))
    width, height = extent(places.frame, columns, places.image_index)
    aspect = image_aspect(columns, places.image_index)
    if target is None:
        return 0.0
    right, down = (a - b for a, b in zip(pointed_at(target.place), gold.place, strict=True))
    distance = math.hypot(right / width * aspect, down / height)
    return max(0.0, 1.0 - distance / math.hypot(aspect, 1.0) / radius)
