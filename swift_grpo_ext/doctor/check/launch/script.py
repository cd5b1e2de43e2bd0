"""Reads a plain launch script: assignments, exports, arrays, ``${A:-b}``, ms-swift. Nothing is run.

What a branch, a loop, a function or a substitution decides is not known; nothing else is followed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

from swift_grpo_ext.doctor.check.launch.commands import Command, Launch, command_of
from swift_grpo_ext.doctor.check.unknown import PLUGIN, Unknown, Word, written
from swift_grpo_ext.errors import SwiftGrpoExtError

_BRACKETS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_EXPANDED = rf"\$\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}|[$<>]{_BRACKETS}|`[^`]*`|\$(?:\w+|[@*#?$!-])"
_DOUBLE = rf'"(?:[^"\\$`]|\\.|\${_BRACKETS}|`[^`]*`|\$(?!\())*"'
_WORD = rf"(?:'[^']*'|{_DOUBLE}|{_EXPANDED}|\\.|\$(?![({{])|(?<![\s;&|()])#|[^\s;&|<>()'\"`\\$#])+"
_FILE = r"(?![<>]\()\d*(?:<<<|&>>?|[<>]&|>>|>\||[<>])"
_ARRAY = rf"[A-Za-z_]\w*\+?=\((?:[ \t]|\\?\n|(?<=\s)#[^\n]*|{_WORD})*\)"
_TOKENS = re.compile(rf"{_FILE}[ \t]*(?:{_WORD})?|{_ARRAY}|{_WORD}", re.DOTALL)
_STATEMENT = re.compile(
    rf"((?:[^\S\n]|\\\n|{_TOKENS.pattern})*)(#[^\n]*|\n|;;?|&&|\|\|?&?|&|[()]|(.))", re.DOTALL
)
_IN_QUOTES = re.compile(rf"{_EXPANDED}|\\.", re.DOTALL)
_PARTS = re.compile(rf"'[^']*'|{_DOUBLE}|{_IN_QUOTES.pattern}", re.DOTALL)
_VALUE = re.compile(r"\$\{?([A-Za-z_]\w*)(?:(:?[-=])(.*?)|:?\?.*?)?\}?", re.DOTALL)
_ITEMS = re.compile(r'"?\$\{?(?:(\w+)\[)?[@*]\]?\}?"?')
_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
# `$(dirname "$0")` and `$(cd "$(dirname "$0")" && pwd)`, not another command that is given the folder.
_FOLDER = re.compile(
    r"""[$(`\s"']*(?:cd\s+(?:--\s+)?)?[$(`\s"']*dirname\s+(?:--\s+)?["']?\$\{?(?:0|BASH_SOURCE)(?!.*\.\.)""",
    re.DOTALL,
)
_PLUGIN = re.compile(r"[$(` ]*swift-grpo-ext\W+path\b[^\n]*")
_HERE = re.compile(
    r"^[ \t]*#.*|(?<!<)<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1(.*)((?:\n(?![ \t]*\2[ \t]*$).*)*(?:\n.*)?)",
    re.MULTILINE,
)
_BLOCKS = {  # words that open a block, end one, or stand in between
    **dict.fromkeys(("if", "for", "while", "until", "case", "select", "{"), 1),
    **dict.fromkeys(("then", "else", "elif", "do", "!", "time", "function"), 0),
    **dict.fromkeys(("fi", "done", "esac", "}"), -1),
}
# Commands that write no file that a run reads, and what people source for their shell, not for a run's ranks.
_WRITES_NOTHING = re.compile(
    r"[:\[(.].*|cat|cd|conda|date|echo|env|eval|exit|hostname|kill|ls|mkdir|module|nvidia-smi|pip|pkill|printf|ps"
    "|pwd|read|rm|set|shopt|sleep|source|swift|test|touch|trap|true|ulimit|unset|wait|wandb|which"
)
_OF_THE_SHELL = re.compile(
    r"(activate|conda\.sh|\.\w*rc|profile|set_env\.sh)$|\b(conda|mamba|micromamba|pyenv)\b|^[-\w]+$"
)
_MOST_NESTED, _MOST_LETTERS = 100, 2**18


def read_script(text: str, environ: Mapping[str, str] | None = None) -> Launch:
    """Read a shell script that is started with these variables.

    A command that a line cuts short is read as it was meant, so that the other checks still see all of it.

    Raises:
        SwiftGrpoExtError: it is no text of a plain shell, or longer than people write.
    """
    if "\0" in text or len(text) > _MOST_LETTERS:
        what = "not the text of a shell" if "\0" in text else "longer than a launch script is"
        raise SwiftGrpoExtError(what, fix="give the launch script itself")
    plain = re.sub(
        r"^[ \t]{0,20}(\$ |!(?=\w))", "", text.replace("\r\n", "\n"), flags=re.MULTILINE
    )  # a prompt
    reader = _Reader(dict(environ or {}), set(environ or ()), Launch(text=text))
    for statement in statements(_HERE.sub(_without_here_document, plain)):
        if statement.words[0] == "exit" and statement.is_sure:
            break
        reader.follow(statement)
    return reader.launch


def _without_here_document(match: re.Match[str]) -> str:
    return match[3] + "\n" * match[4].count("\n") if match[2] else match[0]


class Statement(NamedTuple):
    """A simple command, an assignment or both."""

    words: list[str]  # as they are written; an array is one, and so is a file behind > or <
    end: str  # what ends it
    line: int  # of its first word
    is_sure: bool  # it is always reached, and once


def statements(text: str) -> Iterator[Statement]:
    """The statements of a script in their order.

    Raises:
        SwiftGrpoExtError: a quote or a bracket has no end, or blocks are nested too deeply.
    """
    blocks = brackets = start = 0  # how many are open, and where the last statement began
    line, behind = 1, "\n"
    for match in _STATEMENT.finditer(f"{text}\n\n"):
        body, end = match[1], match[2]
        first = match.end(1) - len(body.lstrip(" \t\\\n"))
        line += text.count("\n", start, first)
        start = first
        if match[3] or blocks + brackets > _MOST_NESTED:
            fix = "`bash -n` names what is open"
            raise SwiftGrpoExtError("not plain bash", where=f"line {line}", fix=fix)
        words = [word for word in _TOKENS.findall(body) if word.strip("\\ \t\n")]
        while words and words[0] in _BLOCKS:
            blocks += _BLOCKS[words[0]]
            words = [] if words[0] in ("for", "select", "case") else words[1:]
        if words and end != "(" and (end != ")" or brackets):
            yield Statement(words, end, line, not (blocks or brackets) and behind not in ("&&", "||"))
        brackets = max(0, brackets + {"(": 1, ")": -1}.get(end, 0))
        behind = end


@dataclass
class _Reader:
    """What is known of a script at one of its statements."""

    values: dict[str, Word | tuple[Word, ...]]  # of its variables; of an array its words
    exported: set[str]
    launch: Launch
    set_by: list[str] = field(default_factory=list)  # what may set any variable
    moved: bool = False  # it may have changed its folder
    makes_files: bool = False  # a program ran that may have written any file
    is_swift: bool = False  # the last command was one of `swift`

    def follow(self, statement: Statement) -> None:
        """Follow one statement."""
        words = [word for word in statement.words if not re.match(_FILE, word)]
        own = list(takewhile(_ASSIGNS.match, words))
        words = words[len(own) :]
        head = words[0] if words else ""
        if not words or head in ("export", "declare", "typeset", "readonly", "local"):
            exports = head == "export" or words[1:2] in (["-x"], ["-gx"]) or "set -a" in self.launch.text
            for word in own + words[1:] * (head != "local"):
                self._declare(word, exports, statement.is_sure)
            return
        texts = [text for word in words for text in self.words(word)]
        text = " ".join(map(written, texts))
        if command := command_of(texts):
            self._swift(command, own, statement)
        elif self.is_swift and re.match("[-–—]+[A-Za-z]", text):  # options that the command has lost
            last = self.launch.commands[-1]
            self.launch.commands[-1] = replace(last, words=(*last.words, *texts))
            self.launch.cuts.append(statement.line)
            return
        elif head in ("source", ".", "eval") or " = " in text[:60]:
            self._sets_anything(text)
        self.is_swift = command is not None
        for name in words[1:] if head in ("read", "mapfile", "let") else ():
            self._put(name, Unknown(f"${name}"))
        self.moved |= head in ("cd", "pushd") and text != "cd ."
        is_written = any(re.match(r"\d*&?>", word) for word in statement.words) and not command
        self.makes_files |= is_written or not _WRITES_NOTHING.fullmatch(head.rpartition("/")[2])

    def _declare(self, word: str, exports: bool, is_sure: bool) -> None:
        """``NAME=value``, ``NAME+=value`` or an array, and a name that is exported."""
        name, _, source = word.partition("=")
        name, adds = name.rstrip("+"), name.endswith("+")
        before = self.values.get(name, "") if adds else ""
        if "=" not in word:
            self._sets_anything(word)
        elif source.startswith("("):
            written_items = re.findall(rf"(?<=\s)#[^\n]*|{_WORD}", source[1:-1], re.DOTALL)
            items = [part for item in written_items if item[0] != "#" for part in self.words(item)]
            rest = items if is_sure else [Unknown(f"${{{name}[@]}}", many=True)]
            self._put(name, (*(before if isinstance(before, tuple) else ()), *rest))
        else:
            self.makes_files |= re.search(r"\b(download|clone|wget|curl)\b", source) is not None
            known = self.value(source) if is_sure else Unknown(f"${name}")
            if isinstance(before, tuple) or not before:
                self._put(name, known)
            else:
                is_text = isinstance(before, str) and isinstance(known, str)
                text = written(before) + written(known)
                self._put(name, text if is_text else Unknown(text))
        self.exported |= {name} if exports else set()

    def _put(self, name: str, value: Word | tuple[Word, ...]) -> None:
        self.values[name] = value
        self.launch.names.add(name)

    def _sets_anything(self, source: str) -> None:
        """Variables that a file or a command sets: ``source ranks.env``, ``export $(cat .env)``."""
        if not _OF_THE_SHELL.search(source):
            is_plain = re.fullmatch(r"[\w ./=~-]{1,60}", source)
            self.set_by.append(source if is_plain else "what a command prints")

    def _plain(self, name: str) -> Word | None:
        """What ``$NAME`` alone stands for: of an array its first word; None where it is not set."""
        value = self.values.get(name)
        return next(iter(value), "") if isinstance(value, tuple) else value

    def words(self, source: str) -> list[Word]:
        """The words that a word as it is written becomes in a command."""
        if array := _ITEMS.fullmatch(source):
            values = self.values.get(array[1] or "")
            return list(values) if isinstance(values, tuple) else [Unknown(source, many=True)]
        value = self.value(source)
        if re.search(r"[*?]|\[[^\[\]]+\]|\{[^{}]*\}", _PARTS.sub("", source)):
            value = Unknown(source)  # names that the shell looks up
        if not re.fullmatch(_EXPANDED, source, re.DOTALL):
            return [value]
        return [Unknown(value.name, many=True)] if isinstance(value, Unknown) else list(value.split())

    def value(self, source: str, parts: re.Pattern[str] = _PARTS) -> Word:
        """What a word becomes where the shell does not split it: in an assignment."""
        found = [self._part(match[0]) for match in parts.finditer(source)]
        filled = iter(found)
        text = parts.sub(lambda _match: written(next(filled)), source)
        return Unknown(text) if any(isinstance(part, Unknown) for part in found) else text

    def _part(self, text: str) -> Word:
        """A quoted or expanded part of a word."""
        if text[0] in "'\\":
            return text.strip("'") if text[0] == "'" else text[1:].strip("\n")
        if text[0] == '"':
            return self.value(text[1:-1], _IN_QUOTES)
        known = _VALUE.fullmatch(text)
        if known is None:
            return "." if _FOLDER.match(text) else PLUGIN if _PLUGIN.fullmatch(text) else Unknown(text)
        name, operator, default = known.groups("")
        value = self._plain(name)
        if value is not None and (":" not in operator or isinstance(value, Unknown) or value):
            return value
        if not operator or self.set_by:
            return Unknown(text)
        word = self.value(default)
        if "=" in operator:
            self.values[name] = word
        return word

    def _swift(self, command: Command, own: list[str], statement: Statement) -> None:
        """A command of ms-swift, with the variables that it sees."""
        assigned = [word.partition("=") for word in own]
        set_here = {name: self.value(source) for name, _, source in assigned}
        exported = {name: self._plain(name) for name in self.values if name in self.exported}
        environ = {**exported, **set_here, **command.environ}
        is_called = not statement.is_sure and re.search(
            r"^\s*(function\s+\w|[\w-]{1,40}\s{0,4}\(\s{0,4}\)\s{0,4}\{)", self.launch.text, re.MULTILINE
        )
        found = replace(
            command,
            environ=environ,
            unexported=frozenset(self.values).difference(environ),
            waits=command.waits and statement.is_sure and statement.end not in ("&", "|"),
            moved=self.moved,
            makes_files=self.makes_files,
            set_by=" and ".join([*self.set_by, *(["its caller"] if is_called else [])]),
        )
        self.launch.names.update(set_here)
        self.launch.commands.append(found)
