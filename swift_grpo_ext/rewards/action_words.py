"""The words of action spaces on screens, as tables: what they call an action, and its arguments.

AndroidControl, AndroidWorld, Mind2Web, UI-R1, GUI-R1, ScreenSpot, UI-TARS, OS-Atlas, Aguvis, CogAgent,
AgentCPM, GLM, Qwen's ``computer_use`` and ``mobile_use``, Claude's and OpenAI's computer tools, Gemini's,
pyautogui.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Kind of action, and the text that the word itself says ("" if none): words.
_WORDS = {
    ("click", ""): "click left_click tap left_single single_click click_at click_absolute"
    " touch leftclick point 点击",
    ("double_click", ""): "double_click left_double doubleclick double_tap dblclick 双击",
    ("triple_click", ""): "triple_click tripleclick",
    ("right_click", ""): "right_click right_single rightclick context_click 右击 右键点击",
    ("middle_click", ""): "middle_click middleclick",
    ("long_press", ""): "long_press longpress long_click press_and_hold 长按",
    ("hover", ""): "hover mouse_move move move_to moveto hover_at",
    ("drag", ""): "drag left_click_drag drag_to dragto left_drag drag_and_drop 拖动 拖拽",
    (
        "type",
        "",
    ): "type input input_text write enter_text typewrite type_text type_text_at fill set_text 输入",
    ("select", ""): "select select_option choose",
    ("swipe", ""): "swipe fling 滑动",
    ("scroll", ""): "scroll scroll_at scroll_document vscroll 滚动",
    ("scroll", "left"): "scroll_left",
    ("scroll", "right"): "scroll_right",
    ("scroll", "up"): "scroll_up",
    ("scroll", "down"): "scroll_down",
    ("hscroll", ""): "hscroll",
    ("swipe", "left"): "swipe_left",
    ("swipe", "right"): "swipe_right",
    ("swipe", "up"): "swipe_up",
    ("swipe", "down"): "swipe_down",
    ("key", ""): "key hotkey press keypress key_press press_key key_combination"
    " system_button press_button key_down",
    ("key", "back"): "back press_back navigate_back go_back 返回",
    ("key", "home"): "home press_home navigate_home go_home",
    ("key", "menu"): "press_menu press_recent recent press_app_switch",
    ("key", "enter"): "enter press_enter keyboard_enter",
    ("open_app", ""): "open_app open launch launch_app start_app openapp 打开",
    ("wait", ""): "wait sleep wait_5_seconds 等待",
    ("terminate", ""): "terminate finished finish complete completed done end stop status task_complete 完成",
    ("terminate", "failure"): "fail infeasible impossible task_impossible",
    ("answer", ""): "answer response reply information",
    ("call_user", ""): "call_user ask_user take_over interact",
}
KINDS: Mapping[str, tuple[str, str]] = {
    word: kind_and_text for kind_and_text, words in _WORDS.items() for word in words.split()
}
"""Word to the kind of action and the text that it says by itself."""

# What a key, or the name of an argument, holds.
_ARGUMENTS = {
    "action": "action action_type actiontype type name op operation function act gt_action",
    "arguments": "arguments args parameters params input action_input action_parameters",
    "place": "coordinate coordinates point position bbox bbox_2d box box_2d start_box click_point"
    " target element location point_2d start start_point start_coordinate start_coordinates"
    " start_position from from_coord from_point startcoordinate gt_bbox element_bbox"
    " bounding_box touch start_xy",
    "end": "coordinate2 end end_box end_point end_coordinate end_coordinates end_position to_coord to_point"
    " endcoordinate target_coordinate destination lift coordinate_2 end_xy",
    "to": "to",
    "path": "path",
    "x": "x start_x startx x1 from_x",
    "y": "y start_y starty y1 from_y",
    "x2": "end_x endx x2 to_x destination_x",
    "y2": "end_y endy y2 to_y destination_y",
    "text": "text content input_text value typed_text message answer response gt_input_text string",
    "app": "app app_name appname package application",
    "direction": "direction scroll_direction swipe_direction",
    "amount_up": "pixels clicks scroll_amount_up",
    "amount_down": "scroll_y delta_y deltay dy y_scroll",
    "amount_right": "scroll_x delta_x deltax dx x_scroll",
    "key": "keys key key_comb combination button_name",
    "button": "button mouse_button",
    "status": "status goal_status",
    "seconds": "time seconds duration wait_time timeout",
    "times": "num_clicks click_count",
    "size": "amount scroll_amount step steps step_count distance magnitude wheel_times",
    "said": "thought thinking reason reasoning explanation rationale summary observation conclusion"
    " description element_info element_type element_description instruction clear press_enter interval hold"
    " raw_text original_op",
}
ARGUMENTS: Mapping[str, str] = {
    name.replace("_", ""): role for role, names in _ARGUMENTS.items() for name in names.split()
}
"""Name of an argument, without underscores, to what it holds."""

_SAME_KEYS = {
    "ctrl": "control",
    "enter": "return",
    "esc": "escape",
    "cmd": "command meta win super windows",
    "alt": "option",
    "delete": "del",
    "space": "spacebar",
    "up": "arrowup",
    "down": "arrowdown",
    "left": "arrowleft",
    "right": "arrowright",
    "pagedown": "pgdn",
    "pageup": "pgup",
    "menu": "recent recents",
}
_KEY_WORDS = {word: key for key, words in _SAME_KEYS.items() for word in words.split()}
_SUCCESS = "success successful complete completed succeeded done finish finished true".split()  # noqa: SIM905
_FAILURE = {"failure", "fail", "failed", "infeasible", "impossible", "error", "false"}
DIRECTIONS = {
    word: name
    for name, han in zip(("up", "down", "left", "right"), "上下左右", strict=True)
    for word in (name, han)
}
OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
BUTTONS = {"left": "click", "right": "right_click", "middle": "middle_click", "wheel": "middle_click"}
EMPTY_TEXTS = {"no input text", "none", "null"}

_SEPARATOR = re.compile(r"[\s+,_-]+")


def word_of(name: str) -> str:
    """A name of an action in the spelling of the table."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip()[:64])
    plain = re.sub(r"[\s-]+", "_", plain.casefold())
    return plain if plain in KINDS else plain.rpartition(".")[2]


def argument_of(name: str) -> str:
    """What an argument of this name holds, "" for one that is not known."""
    plain = "".join(character for character in name[:64].casefold() if character.isalnum())
    return ARGUMENTS.get(plain, "")


def keys_of(text: str) -> frozenset[str]:
    """The keys of a combination: ``Ctrl+C``, ``ctrl c``."""
    parts = [part for part in _SEPARATOR.split(text.strip().casefold()) if part not in ("", "press", "key")]
    return frozenset(_KEY_WORDS.get(part, part) for part in parts)


def status_of(text: str) -> str:
    """``success``, ``failure``, or "" for a text that is neither."""
    plain = text.strip().casefold()
    return "success" if not plain or plain in _SUCCESS else "failure" if plain in _FAILURE else ""


def direction_of(text: str) -> str:
    """The direction that a text names alone, "" if none or several."""
    plain = text.casefold()
    words = set(re.findall(r"[a-z]+|[上下左右]", plain))
    named = {DIRECTIONS[word] for word in words if word in DIRECTIONS}
    return named.pop() if len(named) == 1 else ""
