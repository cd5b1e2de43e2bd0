"""Words and variables of a shell script, as far as its text says them; nothing is run.

Known are quotes, plain variables and their defaults, and arrays. What else the shell would compute is not.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from swift_grpo_ext.doctor.check.unknown import PLUGIN, Unknown, Word, joined

_EXPANSIONS = ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion")
_OTHERS = ("process_substitution", "ansi_c_string", "translated_string")  # their text is not read
_ARRAY = re.compile(r'"?\$\{?(?:(\w+)\[)?[@*]\]?\}?"?')
_EXPANSION = re.compile(r"\$\{?([A-Za-z_]\w*)(?:(:?[-=]).*|:?\?.*)?\}?", re.DOTALL)
_FILES = re.compile(r"[*?]|\[.+\]|\{[^{}]*(,|\.\.)[^{}]*\}")
_SCRIPT_FOLDER = re.compile(r"""dirname\s+(--\s+)?["']?\$\{?(0|BASH_SOURCE)""")
_PLUGIN = re.compile(r"swift-grpo-ext\W+path\b[^\n]*")


@lru_cache(maxsize=1)
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def parsed(text: str) -> Node:
    """The syntax tree of a script."""
    text = re.sub(r"(?<=\S)\\\n(?=\S)", "", text.replace("\r\n", "\n"))  # in the middle of a word
    text = re.sub(r"`#[^`\n]*`", lambda comment: " " * len(comment[0].encode()), text)  # a comment in a line
    return _parser().parse(text.encode("utf-8", "replace")).root_node


def text_of(node: Node) -> str:
    """Its source."""
    return (node.text or b"").decode("utf-8", "replace")


Value = Word | tuple[Word, ...]
"""What a variable holds: a word, or the words of an array."""


class Variables:
    """What ``$NAME`` and ``${NAME[@]}`` stand for while a script is read."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.values: dict[str, Value] = dict(environ)
        self.complete = True  # a name without a value is set nowhere

    def plain(self, name: str) -> Word | None:
        """What ``$NAME`` alone stands for: of an array its first word; None where it is not set."""
        value = self.values.get(name)
        return next(iter(value), "") if isinstance(value, tuple) else value

    def words(self, node: Node) -> list[Word]:
        """The words that a node becomes in a command."""
        source = text_of(node)
        if array := _ARRAY.fullmatch(source):
            values = self.values.get(array[1] or "")
            return list(values) if isinstance(values, tuple) else [Unknown(source, many=True)]
        if node.type in ("word", "concatenation") and _FILES.search(source):
            return [Unknown(source)]  # names that the shell looks up
        value = self.value(node)
        if node.type not in _EXPANSIONS:
            return [value]
        return [Unknown(value.name, many=True)] if isinstance(value, Unknown) else list(value.split())

    def value(self, node: Node | None) -> Word:
        """What a node becomes where the shell does not split words: in an assignment."""
        if node is None:
            return ""
        source = text_of(node)
        match node.type:
            case "raw_string":
                return source[1:-1]
            case "command_substitution" if _PLUGIN.fullmatch(source.strip("$()` ")):
                return PLUGIN
            case "command_substitution" if _SCRIPT_FOLDER.search(source) and ".." not in source:
                return "."
            case "simple_expansion" | "expansion":
                return self._expanded(node)
            case kind if kind in (*_EXPANSIONS, *_OTHERS):
                return Unknown(source)
        return self._filled(node)

    def _filled(self, node: Node) -> Word:
        """A word without its quotes and backslashes, its expansions filled in."""
        quotes = int(node.type == "string")
        escaped = rb'\\([$`"\\])' if quotes else rb"\\(.)"
        source = node.text or b""
        ends = quotes
        parts: list[Word] = []

        def plain(end: int) -> str:
            return re.sub(escaped, rb"\1", source[ends:end].replace(b"\\\n", b"")).decode("utf-8", "replace")

        for child in node.named_children:
            if child.type != "string_content":
                parts += [plain(child.start_byte - node.start_byte), self.value(child)]
                ends = child.end_byte - node.start_byte
        return joined((*parts, plain(len(source) - quotes)))

    def _expanded(self, node: Node) -> Word:
        """``$NAME``, ``${NAME}``, ``${NAME:?message}`` and, with a default, ``${NAME:-word}``."""
        unknown = Unknown(text_of(node))
        known = _EXPANSION.fullmatch(unknown.name)
        if known is None:
            return unknown
        name, operator = known.groups("")
        value = self.plain(name)
        if value is not None and not (":" in operator and isinstance(value, str) and not value):
            return value
        if not operator or not self.complete:
            return unknown
        word = joined(tuple(map(self.value, node.named_children[1:])))
        if "=" in operator:
            self.values[name] = word
        return word
