import json
import math
import random

import pytest

from swift_grpo_ext.rewards.click import click
from swift_grpo_ext.rewards.contract import Unread
from swift_grpo_ext.rewards.values.action import Action, read
from swift_grpo_ext.rewards.values.region import Region

SIZES = [{"original": [1920, 1080], "resized": [1932, 1092]}]
POINT = {
    "solution": {"action": "click", "coordinate": [960, 540]},
    "image_sizes": SIZES,
}
BOX = {"solution": {"action": "click", "bbox": [100, 100, 200, 150]}}


def parse_action(text):
    try:
        return read(text)
    except Unread:
        return None


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('{"action": "click", "coordinate": [10, 20]}', Action("click", Region((10, 20)))),
        ('{"action_type": "Left Click", "point": [10, 20]}', Action("click", Region((10, 20)))),
        ("[{'action': 'tap', 'x': 10, 'y': 20}]", Action("click", Region((10, 20)))),
        (
            '{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [10, 20]}}',
            Action("click", Region((10, 20))),
        ),
        ("click(10, 20)", Action("click", Region((10, 20)))),
        ("pyautogui.click(x=10, y=20)", Action("click", Region((10, 20)))),
        ("pyautogui.doubleClick(x=1.5, y=20)", Action("double_click", Region((1.5, 20)))),
        ("pyautogui.click(10, 20, button='right')", Action("right_click", Region((10, 20)))),
        ("pyautogui.click(10, 20, clicks=2, button='left')", Action("double_click", Region((10, 20)))),
        ("(10, 20)", Action("click", Region((10, 20)))),
        ("[10, 20, 30, 40]", Action("click", Region((10, 20, 30, 40)))),
        ('{"action": "type", "text": "hi there"}', Action("type", None, "hi there")),
        ("type('hi there')", Action("type", None, "hi there")),
        ('pyautogui.write("a (b)")', Action("type", None, "a (b)")),
        ('{"action": "key", "keys": ["ctrl", "c"]}', Action("key", None, "ctrl c")),
        ('{"action": "swipe", "direction": "down"}', Action("swipe", None, "down")),
        ('{"action": "wait"}', Action("wait")),
        ("wait()", Action("wait")),
        ('{"action": "click", "coordinate": [1, 2], "text": null}', Action("click", Region((1, 2)))),
        ('{"action": "scroll", "text": "", "direction": "up", "keys": []}', Action("scroll", None, "up")),
        ('{"action": "type", "text": "type"}', Action("type", None, "type")),
        ("type(content='it\\'s\\n')", Action("type", None, "it's\n")),
        ("type(content='(10, 20)')", Action("type", None, "(10, 20)")),
        (
            '{"name": "act", "arguments": "{\\"action\\": \\"tap\\", \\"coordinate\\": [1, 2]}"}',
            Action("click", Region((1, 2))),
        ),
        ("no action at all", None),
        ("", None),
    ],
)
def test_ways_to_write_an_action(text, action):
    assert parse_action(text) == action


def scored(text, row, **parameters):
    return click(f"<answer>{text}</answer>", row, **parameters)


def in_pixels(text, row, **parameters):
    return scored(text, row, **{"frame": "pixel_original", "gold_frame": "pixel_original", **parameters})


def test_distance_is_relative_to_the_diagonal():
    diagonal = math.hypot(1920, 1080)
    for share in (0, 0.01, 0.025, 0.05, 0.2):
        expected = max(0.0, 1 - share / 0.05)
        for angle in (0.0, 1.0, 2.5):
            x, y = 960 + share * diagonal * math.cos(angle), 540 + share * diagonal * math.sin(angle)
            assert in_pixels(f"click({x:.9f}, {y:.9f})", POINT) == pytest.approx(expected, abs=1e-6)
    assert in_pixels(f"click(960, {540 + 0.05 * diagonal:.6f})", POINT, radius=0.1) == pytest.approx(0.5)


def test_the_score_does_not_depend_on_the_frame():
    assert in_pixels("click(500, 510)", POINT, frame="norm1000") == pytest.approx(
        in_pixels("click(960, 550.8)", POINT)
    )
    assert in_pixels("click(966, 546)", POINT, frame="pixel_resized") == pytest.approx(1.0)


def test_a_box_needs_no_size_and_its_edge_is_outside():
    assert scored("click(150, 120)", BOX) == 1.0
    assert scored("click(100, 120)", BOX) == 0.0
    assert scored("click(960, 540)", {**POINT, "image_sizes": None}) is None


def test_kind_and_text():
    typed = {"solution": {"action": "type", "text": "hello big world"}}
    assert scored('{"action": "type", "text": "hello big world"}', typed) == 1.0
    assert scored('{"action": "type", "text": "hello world"}', typed) == pytest.approx(0.8)
    assert scored('{"action": "click", "text": "hello big world"}', typed) == 0.0
    assert (
        scored(
            '{"action": "scroll", "direction": "up"}',
            {"solution": '{"action": "scroll", "direction": "down"}'},
        )
        == 0.0
    )
    assert scored('{"action": "left_click", "coordinate": [150, 120]}', BOX) == 1.0
    assert scored('{"action": "right_click", "coordinate": [150, 120]}', BOX) == 0.0
    assert scored('{"action": "click"}', BOX) == 0.0


@pytest.mark.parametrize(
    ("text", "gold", "score"),
    [
        ("swipe(500, 900, 500, 100)", {"action": "swipe", "direction": "up"}, 1.0),
        ("swipe(500, 900, 500, 100)", {"action": "swipe", "direction": "down"}, 0.0),
        ("swipe(500, 900, 500, 100)", {"action": "scroll", "direction": "down"}, 1.0),
        ("swipe(500, 900, 500, 100)", {"action": "scroll", "direction": "up"}, 0.0),
        ("scroll(direction='left')", {"action": "swipe", "coordinate": [1, 5], "coordinate2": [9, 5]}, 1.0),
        ('{"action": "swipe", "coordinate": [9, 5], "coordinate2": [1, 4]}', {"action": "swipe_left"}, 1.0),
        ("swipe(500, 500, 500, 500)", {"action": "swipe", "direction": "down"}, 0.0),
        ("pyautogui.scroll(-5)", {"action": "scroll", "direction": "down"}, 1.0),
        ("pyautogui.scroll(5)", {"action": "scroll", "direction": "down"}, 0.0),
    ],
)
def test_the_finger_of_a_swipe_moves_against_the_page(text, gold, score):
    assert scored(text, {"solution": gold, "image_sizes": SIZES}) == score


def test_a_drag_has_two_places():
    gold = {"solution": {"action": "drag", "start_box": [0, 0, 20, 20], "end_box": [80, 80, 99, 99]}}
    assert scored("drag(10, 10, 90, 90)", gold) == 1.0
    assert scored("drag(start_box='(10,10)', end_box='(90,90)')", gold) == 1.0
    assert (
        scored('{"action": "left_click_drag", "coordinate": [10, 10], "coordinate2": [90, 90]}', gold) == 1.0
    )
    assert scored('{"action": "drag", "from": [10, 10], "to": [90, 90]}', gold) == 1.0
    assert scored("drag(10, 10, 50, 50)", gold) == 0.0
    assert scored("drag(90, 90, 10, 10)", gold) == 0.0
    assert scored("click(10, 10)", gold) == 0.0


def test_the_status_at_the_end_is_the_golds():
    failed = {"solution": {"action": "terminate", "status": "failure"}}
    assert scored('{"action": "terminate", "status": "fail"}', failed) == 1.0
    assert scored('{"action": "terminate", "status": "success"}', failed) == 0.0
    assert scored("finished()", failed) == 0.0
    done = {"solution": {"action": "finished", "content": ""}}
    assert scored("finished(content='The price is 5.')", done) == 1.0
    assert scored("infeasible()", done) == 0.0
    told = {"solution": {"action": "terminate", "text": "the price is 5"}}
    assert scored("finished(content='price is 5')", told) == pytest.approx(6 / 7)


def test_several_actions_are_none():
    assert scored("click(150, 120) click(0, 0)", BOX) == 0.0
    assert scored("click(0, 0) click(150, 120)", BOX) == 0.0
    both = [{"action": "click", "coordinate": [150, 120]}, {"action": "click", "coordinate": [0, 0]}]
    assert scored(json.dumps(both), BOX) == 0.0


def test_several_places_in_one_action_are_none():
    assert scored('{"action": "click", "coordinate": [[150, 120], [0, 0]]}', BOX) == 0.0
    assert scored("[[150, 120], [0, 0]]", BOX) == 0.0
    assert scored("(0, 0), (300, 240)", BOX) == 0.0


def test_gold_fields_without_a_value_ask_for_nothing():
    filled = {"action": "click", "coordinate": [960, 540], "text": None, "direction": None, "bbox": None}
    assert scored("click(960, 540)", {**POINT, "solution": filled}) == 1.0
    scrolled = {"action": "scroll", "coordinate": None, "text": None, "direction": "down"}
    assert scored('{"action": "scroll", "direction": "down"}', {"solution": scrolled}) == 1.0
    assert scored('{"action": "scroll", "direction": "up"}', {"solution": scrolled}) == 0.0


@pytest.mark.parametrize("place", [[math.nan, 540], [1e400, 1], [5, 5, 5, 9], [0, 0, math.inf, 1]])
def test_a_gold_place_that_no_answer_could_meet_is_unscored(place):
    gold = {"action": "click", "bbox" if len(place) == 4 else "coordinate": place}
    assert scored("click(0, 0)", {**POINT, "solution": gold}) is None


def test_nothing_is_evaluated(tmp_path):
    witness = tmp_path / "witness"
    for text in (
        f"__import__('os').system('touch {witness}')",
        f'{{"action": "exec", "text": "open({str(witness)!r}, \'w\')"}}',
        "9**9**9",
    ):
        assert scored(text, BOX) == 0.0
    assert not witness.exists()


def test_random_actions_as_gold_and_answer_never_raise():
    """Any mix of known and unknown keys, columns and values is a score in range, or None with a reason."""
    rng = random.Random(21)
    values = [None, "", "down", "click", "[1, 2]", [], [1, 2], [1, 1, 9, 9], [[1, 2]], {}, math.nan, -3, True]
    keys = [
        "action",
        "action_type",
        "x",
        "y",
        "coordinate",
        "bbox",
        "text",
        "direction",
        "time",
        "odd",
        "keys",
    ]
    seen = set()
    for _ in range(2000):
        gold, answer = ({rng.choice(keys): rng.choice(values) for _ in range(4)} for _ in range(2))
        gold["action"] = rng.choice(["click", "scroll", "type", "wait", "drag", "nothing", None])
        column = rng.choice(["solution", "action", "gt_action", "operation"])
        row = {column: rng.choice([gold, json.dumps(gold), *values]), "image_sizes": SIZES}
        row |= {rng.choice(["gt_bbox", "gt_input_text", "bbox", "solution"]): rng.choice(values)}
        outcome = click.outcome(rng.choice([json.dumps(answer), json.dumps(gold)]), row)
        assert outcome.reason if outcome.score is None else 0 <= outcome.score <= 1, (row, answer)
        seen.add(outcome.score)
    assert {None, 0.0, 1.0} <= seen
