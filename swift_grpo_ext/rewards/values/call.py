"""A call as programs write it: ``click(x=1, y=2)``, ``scroll(direction='down')``; never run.

>>> call_in("pyautogui.click(x=1, y=2)"), call_in("hotkey('ctrl', 'c')").bare, call_in("click(1, 2) or not")
(Call(name='pyautogui.click', named={'x': 1, 'y': 2}, bare=[]), ['ctrl', 'c'], None)
"""

import re
from typing import NamedTuple

from swift_grpo_ext.rewards.json_text import Json, decoded, literal

MAX_CALL = 4_000  # characters
_CALL = re.compile(r"\s*([A-Za-z_][\w.]{1,48})\s?\((.*)\)\s*", re.DOTALL)
_ARGUMENT = re.compile(
    r"\s*(?:([A-Za-z_]\w{0,40})\s?=\s?)?(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\[[^\[\]]*\]|\[\[[^\[\]]*\]\]"
    r"|\([^()]*\)|[^,()\[\]\"'=]{1,256})\s*(?:,|\Z)",
    re.DOTALL,
)


class Call(NamedTuple):
    """A call: its name, its arguments with a name, and those without one."""

    name: str
    named: dict[str, Json]
    bare: list[Json]


def call_in(text: str) -> Call | None:
    """Read a text as a call; None for anything else, and where an argument is given twice."""
    written = _CALL.fullmatch(text) if len(text) <= MAX_CALL else None
    if written is None:
        return None
    call = Call(written[1], {}, [])
    at = 0
    while at < len(written[2]):
        argument = _ARGUMENT.match(written[2], at)
        if argument is None or argument.end() == at or argument[1] in call.named:
            return None
        raw = argument[2].strip()
        value = decoded(raw, literal, otherwise=raw.strip("\"'"))
        if argument[1]:
            call.named[argument[1]] = value
        elif raw:
            call.bare.append(value)
        at = argument.end()
    return call
