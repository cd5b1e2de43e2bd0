"""Action spaces of data sets and models: one action in many vocabularies."""

import json

import pytest

from swift_grpo_ext.rewards.click import click
from swift_grpo_ext.rewards.gold.columns import gold_completion
from swift_grpo_ext.rewards.reading import actions

SIZES = [{"original": [1000, 1000], "resized": [1000, 1000]}]


def row(gold, **columns):
    return {"solution": gold, "image_sizes": SIZES, **columns}


RIGHT = {
    "click": (
        {"action_type": "click", "x": 500, "y": 300},
        "click(start_box='(500,300)')",
        "Thought: the button.\nAction: click(start_box='<|box_start|>(500,300)<|box_end|>')",
        '<tool_call>\n{"name": "mobile_use", "arguments": {"action": "click", "coordinate": [500, 300]}}\n</tool_call>',
        "[{'action': 'click', 'point': [500, 300], 'input_text': 'no input text'}]",
        "{'action': 'CLICK', 'value': None, 'position': [500, 300]}",
        "CLICK <point>[[500, 300]]</point>",
        "CLICK(box=[[490,290,510,310]], element_type='button', element_info='OK')",
        "left_click(start_box='[500,300]', element_info='OK')",
        '{"POINT": [500, 300]}',
        "action:CLICK\tpoint:500,300",
        "pyautogui.click(500, 300)",
        '{"name": "click_at", "args": {"x": 500, "y": 300}}',
        '{"type": "click", "button": "left", "x": 500, "y": 300}',
        "I will click on the button at (500, 300).",
        "点击(500, 300)",
        "(500, 300)",
    ),
    "right click": (
        {"action": "right_click", "coordinate": [500, 300]},
        '{"action": "click", "button": "right", "coordinate": [500, 300]}',
        "right_single(start_box='(500,300)')",
        "pyautogui.rightClick(x=500, y=300)",
        "pyautogui.click(x=500, y=300, button='right')",
    ),
    "double click": (
        {"action": "double_click", "coordinate": [500, 300]},
        "left_double(start_box='(500,300)')",
        "pyautogui.click(x=500, y=300, clicks=2)",
    ),
    "app": (
        {"action_type": "open_app", "app_name": "Chrome"},
        "open_app(app_name='Chrome')",
        '{"action": "open", "text": "Chrome"}',
        "OPEN_APP [Chrome]",
        "LAUNCH(app='chrome')",
        "mobile.open_app(app_name='Chrome')",
    ),
    "drag": (
        {"action": "drag", "start": [100, 100], "end": [500, 500]},
        "drag(start_box='(100,100)', end_box='(500,500)')",
        '{"action": "left_click_drag", "start_coordinate": [100, 100], "coordinate2": [500, 500]}',
        '{"type": "drag", "path": [{"x": 100, "y": 100}, {"x": 500, "y": 500}]}',
        '{"name": "drag_and_drop", "args": {"x": 100, "y": 100, "destination_x": 500, "destination_y": 500}}',
    ),
    "scroll": (
        {"action_type": "scroll", "direction": "down"},
        "scroll(point='<point>500 300</point>', direction='down')",
        '{"action": "scroll", "pixels": -300}',
        '{"type": "scroll", "scroll_x": 0, "scroll_y": 300}',
        '{"action": "scroll", "scroll_direction": "down", "scroll_amount": 3, "coordinate": [1, 2]}',
        '{"name": "mobile_use", "arguments": {"action": "swipe", "coordinate": [500, 800], "coordinate2": [500, 200]}}',
        "SCROLL [DOWN]",
        "SCROLL_DOWN(box=[[1,2,3,4]], step_count=5)",
        "pyautogui.scroll(-5)",
        "[{'action': 'scroll', 'point': [1, 2], 'input_text': 'down'}]",
    ),
    "swipe": (
        {"action": "swipe", "coordinate": [500, 800], "coordinate2": [500, 200]},
        '{"action": "swipe", "direction": "up"}',
        "mobile.swipe(from_coord=[500, 700], to_coord=[510, 300])",
        '{"POINT": [500, 700], "to": "up"}',
        '{"action": "scroll", "direction": "down"}',
    ),
    "keys": (
        {"action": "key", "keys": ["ctrl", "c"]},
        "hotkey(key='ctrl c')",
        "pyautogui.hotkey('ctrl', 'c')",
        '{"action": "key", "text": "Ctrl+C"}',
        '{"type": "keypress", "keys": ["CTRL", "C"]}',
    ),
    "back": (
        {"action_type": "navigate_back"},
        "press_back()",
        "PRESS_BACK",
        '{"action": "system_button", "button": "Back"}',
        '{"PRESS": "BACK"}',
    ),
    "wait": (
        {"action": "wait", "time": 5},
        "wait()",
        '{"action": "wait", "time": 5}',
        "WAIT",
        "mobile.wait(seconds=5)",
    ),
    "end": (
        {"action": "terminate", "status": "success"},
        "finished(content='all done')",
        "COMPLETE",
        '{"action": "status", "goal_status": "complete"}',
        "computer.terminate(status='success')",
    ),
    "select": (
        {"op": "SELECT", "value": "Red", "bbox": [400, 200, 600, 400]},
        "SELECT(box=[[490,290,510,310]], value='Red')",
    ),
    "type": (
        {"action_type": "input_text", "text": "New York"},
        "TYPE [New York]",
        "type(content='New York\\n')",
        "{'action': 'INPUT', 'value': 'New York', 'position': [1, 2]}",
        '{"TYPE": "New York"}',
        "pyautogui.typewrite('New York')",
    ),
}
WRONG = {
    "click": (
        '{"action": "long_press", "coordinate": [500, 300]}',
        "click(900, 900)",
        "scroll(direction='down')",
    ),
    "app": ("open_app(app_name='Maps')", "open_app()", "click(500, 300)"),
    "right click": ("click(500, 300)", '{"action": "click", "coordinate": [500, 300]}'),
    "drag": (
        "drag(start_box='(500,500)', end_box='(100,100)')",
        "drag(start_box='(100,100)')",
        "drag(start_box='(100,100)', end_box='(100,100)')",
    ),
    "scroll": (
        '{"action": "scroll", "pixels": 300}',
        "scroll(direction='up')",
        '{"action": "swipe", "coordinate": [500, 200], "coordinate2": [500, 800]}',
        '{"action": "scroll"}',
        "pyautogui.scroll(5)",
    ),
    "swipe": ('{"action": "swipe", "direction": "down"}', '{"action": "swipe", "coordinate": [500, 300]}'),
    "keys": ("hotkey('ctrl', 'v')", '{"action": "key", "text": "c"}'),
    "back": ("press_home()", '{"action": "system_button", "button": "Home"}'),
    "wait": ("click(500, 300)", '{"action": "terminate"}'),
    "end": ('{"action": "terminate", "status": "failure"}', "FAIL()"),
    "select": ("SELECT(box=[[490,290,510,310]], value='Blue')",),
    "type": ("type(content='Rome')", "click(500, 300)"),
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, (_, *texts) in RIGHT.items() for text in texts]
)
def test_the_same_action_in_other_words(name, text):
    assert click(f"<think>click(1, 1)</think>{text}", row(RIGHT[name][0])) == pytest.approx(1.0)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_another_action(name, text):
    assert click(text, row(RIGHT[name][0])) < 0.5


@pytest.mark.parametrize("name", RIGHT)
def test_the_gold_itself_gets_the_maximum(name):
    gold = row(RIGHT[name][0])
    assert click(gold_completion(click, gold), gold) == 1.0
    assert click(json.dumps(RIGHT[name][0]), gold) == 1.0


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ({"action_type": "click", "x": 500, "y": 300, "index": 4}, "'index'"),
        ({"action_type": "DUAL_POINT", "touch_point": [0.5, 0.3], "lift_point": [0.5, 0.3]}, "'touch_point'"),
        ({"action_type": 4, "click_point": [500, 300]}, "no action"),
        ({"op": "CLICK", "value": ""}, "no place"),
        ({"action": "click", "coordinate": [[1, 2], [3, 4], [5, 6]]}, "no place"),
        ({"action": "scroll"}, "no direction"),
        ({"action": "drag", "end": [1, 2]}, "no place"),
        ({"action": "click", "coordinate": [5000, 300]}, "outside"),
    ],
)
def test_a_gold_with_a_part_that_is_not_known_is_unscored(gold, reason):
    outcome = click.outcome("click(500, 300)", row(gold))
    assert outcome.score is None
    assert reason in outcome.reason


def test_golds_over_several_columns():
    ui_r1 = {"gt_action": "click", "gt_bbox": [400, 200, 600, 400], "image_sizes": SIZES}
    assert click("click(500, 300)", ui_r1) == 1.0
    assert click("click(300, 300)", ui_r1) == 0.0
    gui_r1 = {"gt_action": "type", "gt_bbox": [500, 300], "gt_input_text": "hello", "image_sizes": SIZES}
    assert click("[{'action': 'type', 'point': [500, 300], 'input_text': 'hello'}]", gui_r1) == 1.0
    moved = {"gt_action": "scroll", "gt_bbox": [500, 300], "gt_input_text": "up", "image_sizes": SIZES}
    assert click("[{'action': 'scroll', 'point': [500, 300], 'input_text': 'up'}]", moved) == 1.0
    assert click("[{'action': 'scroll', 'point': [500, 300], 'input_text': 'down'}]", moved) == 0.0


def test_waiting_counts_by_its_seconds():
    gold = row({"action": "wait", "time": 10})
    assert click('{"action": "wait", "time": 5}', gold) == 0.5


@pytest.mark.parametrize("text", ["kEy 5", "cLick (10, 20)", "sw\u0131pe up", "\u212aey enter"])
def test_a_verb_in_odd_letters_raises_nothing(text):
    actions.parse_action(text)
