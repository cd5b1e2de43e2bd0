"""Splits a plain shell script into commands and fills in variables, as far as its text says them."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from swift_grpo_ext.doctor.check.unknown import PLUGIN, Unknown, Word, joined
from swift_grpo_ext.errors import SwiftGrpoExtError

_BRACKETS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|`[^`]*`"
_BRACES = r"\$\{(?:[^{}]|\{[^{}]*\})*\}"
_DOUBLE = rf'"(?:[^"\\$`]|\\.|\$(?:{_BRACKETS})|`[^`]*`|\$(?!\())*"'
_TOKEN = re.compile(
    rf"(?P<blank>(?:[ \t]|\\\n)+)|(?P<comment>(?<![^\s;&|()])\#[^\n]*)|(?P<end>\n|;;|;|&&|\|\|?&?|&(?!>))"
    rf"|(?P<redirect>(?![<>]\()\d*(?:<<<|&>>?|[<>]&|>>|>\||[<>]))|(?P<array>[A-Za-z_]\w*\+?=\()|(?P<bracket>[()])"
    rf"|(?P<word>(?:'[^']*'|{_DOUBLE}|{_BRACES}|[$<>](?:{_BRACKETS})|`[^`]*`|\\.|\$(?![({{])|[^\s;&|<>()'\"`\\$])+)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_PARAMETER = rf"{_BRACES}|\$(?:\w+|[@*#?$!-])"
_COMMAND = rf"[$<>](?:{_BRACKETS})|`[^`]*`"
_IN_QUOTES = re.compile(rf"(?P<parameter>{_PARAMETER})|(?P<command>{_COMMAND})|\\(?P<escaped>.)", re.DOTALL)
_PARTS = re.compile(rf"'(?P<single>[^']*)'|(?P<double>{_DOUBLE})|{_IN_QUOTES.pattern}", re.DOTALL)
_ALONE = re.compile(rf"{_PARAMETER}|{_COMMAND}", re.DOTALL)
_EXPANSION = re.compile(r"\$\{?([A-Za-z_]\w*)(?:(:?[-=])(.*?)|:?\?.*?)?\}?", re.DOTALL)
_ARRAY = re.compile(r'"?\$\{?(?:(\w+)\[)?[@*]\]?\}?"?')
_FILES = re.compile(r"[*?]|\[[^\[\]]+\]|\{[^{}]*\}")
# `$(dirname "$0")` and `$(cd "$(dirname "$0")" && pwd)`, not another command that is given the folder.
_SCRIPT_FOLDER = re.compile(
    r"""[$(`\s"']*(?:cd\s+(?:--\s+)?)?[$(`\s"']*dirname\s+(?:--\s+)?["']?\$\{?(?:0|BASH_SOURCE)(?!.*\.\.)""",
    re.DOTALL,
)
_PLUGIN = re.compile(r"swift-grpo-ext\W+path\b[^\n]*")
# Words that open a block, end one, or stand in between.
_BLOCKS = {
    **dict.fromkeys(("if", "for", "while", "until", "case", "select", "{"), 1),
    **dict.fromkeys(("then", "else", "elif", "do", "!", "time", "function"), 0),
    **dict.fromkeys(("fi", "done", "esac", "}"), -1),
}
_MOST_NESTED = 100


class Array(NamedTuple):
    """``NAME=(word word)`` or ``NAME+=(word)``."""

    name: str  # with the sign behind it
    items: tuple[str, ...]


class Statement(NamedTuple):
    """A simple command, an assignment or both, with its words as they are written."""

    words: list[str | Array]
    end: str  # what ends it
    line: int  # of its first word
    is_sure: bool  # it is always reached, and once
    writes: bool  # its output goes to a file


def statements(text: str) -> Iterator[Statement]:
    """The statements of a script in their order.

    Raises:
        SwiftGrpoExtError: a quote or a bracket has no end, or blocks are nested too deeply.
    """
    words: list[str | Array] = []
    items: list[str] | None = None  # of the array that is open
    blocks = brackets = start = 0  # how many are open, and where the last token began
    is_target = writes = False
    behind = "\n"
    line = first = 1
    for token in _TOKEN.finditer(f"{text}\n\n"):
        kind, part = str(token.lastgroup), token[0]
        line += text.count("\n", start, token.start())
        start = token.start()
        first = first if words else line
        if part in ("'", '"', "`", "$") or blocks + brackets > _MOST_NESTED:
            raise SwiftGrpoExtError(
                "not plain bash", where=f"line {line}", fix="`bash -n` names what is open"
            )
        if kind == "redirect":
            is_target = True
            writes |= ">" in part and "&" not in part
        elif kind == "word" and is_target:
            is_target = False
        elif kind == "word" and part.strip("\\ \t"):
            (words if items is None else items).append(part)
        elif kind == "array":
            items = []
            words.append(part[:-1])
        elif part == ")" and items is not None:
            words[-1] = Array(str(words[-1]), tuple(items))
            items = None
        elif kind in ("end", "bracket") and items is None:
            words, opened = _without_keywords(words)
            blocks += opened
            if words and (kind == "end" or (brackets and part == ")")):
                is_sure = not (blocks or brackets) and behind not in ("&&", "||")
                yield Statement(words, part, first, is_sure, writes)
            brackets = max(0, brackets + {"(": 1, ")": -1}.get(part, 0))
            behind, words, writes = part, [], False


def _without_keywords(words: list[str | Array]) -> tuple[list[str | Array], int]:
    """The words behind those that open and end blocks, and how many blocks more are open."""
    opened = 0
    while words and words[0] in _BLOCKS:
        opened += _BLOCKS[str(words[0])]
        words = [] if words[0] in ("for", "select", "case") else words[1:]
    return words, opened


Value = Word | tuple[Word, ...]
"""What a variable holds: a word, or the words of an array."""


class Variables:
    """What ``$NAME`` and ``${NAME[@]}`` stand for while a script is read."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.values: dict[str, Value] = dict(environ)
        self.set_by: list[str] = []  # what may set any variable: then one without a value is not known either

    def plain(self, name: str) -> Word | None:
        """What ``$NAME`` alone stands for: of an array its first word; None where it is not set."""
        value = self.values.get(name)
        return next(iter(value), "") if isinstance(value, tuple) else value

    def words(self, source: str) -> list[Word]:
        """The words that a word as it is written becomes in a command."""
        if array := _ARRAY.fullmatch(source):
            values = self.values.get(array[1] or "")
            return list(values) if isinstance(values, tuple) else [Unknown(source, many=True)]
        value = self.value(source)
        if _FILES.search(_PARTS.sub("", source)):
            value = Unknown(source)  # names that the shell looks up
        if not _ALONE.fullmatch(source):
            return [value]
        return [Unknown(value.name, many=True)] if isinstance(value, Unknown) else list(value.split())

    def value(self, source: str, parts: re.Pattern[str] = _PARTS) -> Word:
        """What a word becomes where the shell does not split it: in an assignment."""
        found: list[Word] = []
        end = 0
        for match in parts.finditer(source):
            found += [source[end : match.start()], self._part(match[0], match[match.lastgroup or 0])]
            end = match.end()
        return joined((*found, source[end:]))

    def _part(self, text: str, inner: str) -> Word:
        """A quoted or expanded part of a word."""
        if text[0] in "'\\":
            return inner.strip("\n")
        if text[0] == '"':
            return self.value(text[1:-1], _IN_QUOTES)
        known = _EXPANSION.fullmatch(text)
        if known is None and _SCRIPT_FOLDER.match(text):
            return "."
        if known is None:
            return PLUGIN if _PLUGIN.fullmatch(text.strip("$()` ")) else Unknown(text)
        name, operator, default = known.groups("")
        value = self.plain(name)
        if value is not None and (":" not in operator or isinstance(value, Unknown) or value):
            return value
        if not operator or self.set_by:
            return Unknown(text)
        word = self.value(default)
        if "=" in operator:
            self.values[name] = word
        return word
