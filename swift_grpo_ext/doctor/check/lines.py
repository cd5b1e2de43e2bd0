"""Cuts the tokens of a script into simple commands, and finds lines that end a command too early."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from swift_grpo_ext.doctor.check.shell import Token

_ASSIGNED = re.compile(r"^[A-Za-z_]\w*\+?=$")
_ENDS = ("\n", ";", "&", "&&", "|", "||", "(", ")", ";;")
_REDIRECTIONS = ("<", ">", ">>", "<<", ">&", "<&", "&>")


@dataclass(frozen=True)
class Cut:
    """A place where the shell ends a command that was meant to go on.

    Attributes:
        line: Its line, from 1.
        reason: ``comment``, ``space``, ``blank`` or ``backslash`` (a missing one).
        text: The comment.
    """

    line: int
    reason: str
    text: str = ""


def joined(found: list[Token], cuts: list[Cut]) -> Iterator[Token]:
    """The tokens without comments, and without line ends before a line that starts with an option."""
    previous: Token | None = None
    depth = 0
    for index, token in enumerate(found):
        depth += (token.text == "(") - (token.text == ")") if token.kind == "operator" else 0
        if token.kind == "comment":
            continue
        if token.text == "\n":
            following = next(
                (one for one in found[index:] if one.kind != "comment" and one.text != "\n"), None
            )
            goes_on = following is not None and re.match(r"[-–—]+[A-Za-z]", following.plain)
            if goes_on and previous is not None and depth == 0:
                if previous.text != "\n":
                    cuts.append(_cut(found, index))
                    previous = token
                continue
        elif token.kind == "word" and not token.raw.strip() and len(token.pieces) == 1 and token.raw:
            previous = token  # an escaped space at the end of a line
            continue
        previous = token
        yield token


def _cut(found: list[Token], index: int) -> Cut:
    """Why the shell ends the command at this line end."""
    line = found[index].line
    before = found[index - 1]
    after = found[index + 1]
    if before.kind == "comment":
        return Cut(line, "comment", before.text)
    if before.kind == "word" and not before.raw.strip():
        return Cut(line, "space")
    if after.kind == "comment":
        return Cut(after.line, "comment", after.text)
    return Cut(line, "blank" if after.text == "\n" or before.line < line else "backslash")


def simple_commands(found: Iterator[Token]) -> Iterator[tuple[list[Token], str]]:
    """Words of each simple command and the operator that ends it; an array's brackets stay in the words."""
    words: list[Token] = []
    in_array = skip = False
    for token in found:
        if token.kind == "word":
            if not skip:
                words.append(token)
            skip = False
        elif token.text == "(" and words and _ASSIGNED.match(words[-1].raw):
            in_array = True
            words.append(token)
        elif in_array:
            if token.text == ")":
                in_array = False
                words.append(token)
        elif token.text in _REDIRECTIONS:
            skip = True
        elif token.text in _ENDS:
            yield words, token.text
            words, skip = [], False
    yield words, ""
