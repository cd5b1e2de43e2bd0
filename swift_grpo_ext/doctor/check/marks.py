"""Marks around text that a script does not say, so that it is never taken for a value."""

from __future__ import annotations

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
