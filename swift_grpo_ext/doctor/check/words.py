"""What the shell does to the text of one word: fields, braces, prefixes and suffixes."""

from __future__ import annotations

import re
from fnmatch import translate

PLUGIN = "<swift-grpo-ext>"
"""Stands for the output of $(swift-grpo-ext path)."""

_BEGIN, _END, _OPEN = "\ue000", "\ue001", "\ue002"


def unknown(text: str) -> str:
    """Text of a script whose value is not known."""
    return f"{_BEGIN}{text}{_END}"


def is_known(word: str) -> bool:
    """Nothing in it comes from elsewhere."""
    return _BEGIN not in word


def is_open(word: str) -> bool:
    """It may stand for any number of words, options among them."""
    return word.startswith(_OPEN)


def opened(text: str, *, marked: bool = False) -> str:
    """Text of a script, with its marks or without, that may stand for any number of words."""
    return _OPEN + (text if marked else unknown(text))


def shown(word: str) -> str:
    """As the script writes it."""
    return word.translate({ord(mark): None for mark in (_BEGIN, _END, _OPEN)})


def is_all_unknown(word: str) -> bool:
    """It begins with what comes from elsewhere."""
    return word.startswith(_BEGIN)


_BRACES = re.compile(r"\{([^{}]*,[^{}]*|-?\d+\.\.-?\d+)\}")
_MOST_WORDS = 4096


def split(text: str) -> list[str]:
    """Fields of an unquoted value; blanks at its ends part it from what stands beside it."""
    if not text.strip():
        return ["", ""] if text else [""]
    return [*[""] * text[0].isspace(), *text.split(), *[""] * text[-1].isspace()]


def braced(word: str) -> list[str]:
    """``{a,b}`` and ``{1..3}`` written out."""
    done: list[str] = []
    todo = [word]
    while todo and len(done) + len(todo) < _MOST_WORDS:
        one = todo.pop(0)
        match = _BRACES.search(one)
        if match is None:
            done.append(one)
            continue
        first, dots, last = match[1].partition("..")
        if dots and "," not in match[1]:
            low, high = int(first), int(last)
            many = [str(number) for number in range(low, min(high, low + _MOST_WORDS) + 1)]
        else:
            many = match[1].split(",")
        todo = [one[: match.start()] + part + one[match.end() :] for part in many] + todo
    return [*done, *todo]


def stripped(value: str, how: str, pattern: str) -> str:
    """``${A##*/}`` and its like."""
    matches = re.compile(translate(pattern)).match
    cuts = range(len(value) + 1)
    if how[0] == "#":
        fitting = [at for at in cuts if matches(value[:at])]
        return value[(fitting[-1] if how == "##" else fitting[0]) :] if fitting else value
    fitting = [at for at in cuts if matches(value[at:])]
    return value[: (fitting[0] if how == "%%" else fitting[-1])] if fitting else value


def unescaped_in_quotes(source: bytes) -> str:
    """Text between double quotes, without its backslashes."""
    text = source.decode("utf-8", "replace").replace("\\\n", "")
    return re.sub(r'\\([$`"\\])', r"\1", text)
