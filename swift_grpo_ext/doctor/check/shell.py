"""Words and variables of a shell script, as far as its text says them; nothing is run."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from operator import add, floordiv, mod, mul, sub

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from swift_grpo_ext.doctor.check.unknown import PLUGIN, Unknown, Word, joined, written

Text = tuple[Word, ...]
"""Parts of a text: what is written, and what is not known."""

_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul, "/": floordiv, "%": mod}
_EXPANSIONS = ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion")
_OTHERS = ("process_substitution", "ansi_c_string", "translated_string")  # their text is not read
_ARRAY = re.compile(r'"?\$(?:\{?([@*])\}?|\{(\w+)\[[@*]\]\})"?')
_SCRIPT_FOLDER = re.compile(r"""dirname\s+(--\s+)?["']?\$\{?(0|BASH_SOURCE)""")
_PATTERN = re.compile(r"[*?]|\[.+\]|\{[^{}]*(,|\.\.)[^{}]*\}")

# Blanks of web pages: the shell takes them for letters, the parser for blanks. While the parser reads the
# script, letters of Unicode's private area stand in their place.
_LETTERS = {ord(blank): 0xE010 + at for at, blank in enumerate("\u00a0\u200b\u200c\u200d\u2060\u3000\ufeff")}
_BLANKS = {letter: blank for blank, letter in _LETTERS.items()}


@lru_cache(maxsize=1)
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def parsed(text: str) -> Node:
    """The syntax tree of a script."""
    text = text.replace("\r\n", "\n").translate(_LETTERS)
    text = re.sub(r"`#[^`\n]*`", lambda comment: " " * len(comment[0].encode()), text)  # a comment in a line
    return _parser().parse(text.encode("utf-8", "replace")).root_node


def text_of(node: Node) -> str:
    """Its source."""
    return (node.text or b"").decode("utf-8", "replace").translate(_BLANKS)


@dataclass
class Variables:
    """What ``$NAME`` and ``$1`` stand for while a script is read."""

    values: dict[str, Text] = field(default_factory=dict)  # variables, those that it starts with among them
    arrays: dict[str, list[Word]] = field(default_factory=dict)
    positional: list[Word] | None = None  # what it is called with; None if that is not known
    script: str = ""  # its own path
    folder: str | None = ""  # where it is, relative to where it was started; None if that is not known
    complete: bool = True  # a name without a value is set nowhere

    def words(self, nodes: Sequence[Node]) -> list[Word]:
        """The words that nodes become; nodes that only a backslash and a line end part are one word."""
        words: list[Word] = []
        pieces: list[tuple[Text, bool]] = []
        for node, following in zip_longest(nodes, nodes[1:]):
            array = self._array(node)
            if array is not None and not pieces:
                words += array
                continue
            pieces += self._pieces(node, files=True)
            if following is None or not _touch(node, following):
                words += _split(pieces)
                pieces = []
        return words

    def text(self, node: Node) -> Text:
        """Its value where the shell does not split words: in an assignment."""
        return tuple(part for text, _ in self._pieces(node) for part in text)

    def get(self, name: str) -> Text | None:
        """A variable's value; None if nobody sets it."""
        if name.isdecimal() or name in ("@", "*"):
            return self._given(name)
        if name in self.arrays and name not in self.values:
            return tuple(self.arrays[name][:1])
        return self.values.get(name)

    def _given(self, name: str) -> Text | None:
        """``$1``, or all that the script is called with."""
        given = self.positional
        if given is None:
            return None
        if not name.isdecimal():
            return tuple(part for word in given for part in (word, " "))[:-1]
        return (given[int(name) - 1],) if int(name) <= len(given) else ("",)

    def _array(self, node: Node) -> list[Word] | None:
        """The words of ``"${ARGS[@]}"`` and ``"$@"`` standing alone; None for any other word."""
        match = _ARRAY.fullmatch(text_of(node))
        if match is None:
            return None
        values = self.positional if match[1] else self.arrays.get(match[2])
        return [Unknown(text_of(node), many=True)] if values is None else list(values)

    def _pieces(self, node: Node, *, files: bool = False) -> list[tuple[Text, bool]]:
        """(text, quoted) of a word's parts; signs of a pattern may stand for files."""
        kind = node.type
        source = text_of(node)
        if kind == "concatenation":
            return [piece for child in node.children for piece in self._pieces(child, files=files)]
        if kind == "raw_string":
            return [((source[1:-1],), True)]
        if kind == "string":
            return [(self._quoted(node), True)]
        if kind in _EXPANSIONS:
            return [(self._expanded(node), False)]
        if kind in _OTHERS or (files and _PATTERN.search(source)):
            return [((Unknown(source),), True)]  # files, or words, that the shell makes of it
        return [((re.sub(r"\\(.)", r"\1", source.replace("\\\n", "")),), False)]

    def _quoted(self, node: Node) -> Text:
        """Text between double quotes, its expansions filled in."""
        source = node.text or b""
        begin = 1
        parts: list[Word] = []
        for child in node.children:
            if child.type in _EXPANSIONS:
                start = child.start_byte - node.start_byte
                parts += [_unescaped(source[begin:start]), *self._expanded(child)]
                begin = child.end_byte - node.start_byte
        return (*parts, _unescaped(source[begin:-1]))

    def _expanded(self, node: Node) -> Text:
        unknown = (Unknown(text_of(node)),)
        if node.type == "arithmetic_expansion":
            number = self._number(node.named_children[0]) if len(node.named_children) == 1 else None
            return unknown if number is None else (str(number),)
        if node.type == "command_substitution":
            output = self._output(text_of(node).strip("$()`").strip())
            return unknown if output is None else (output,)
        inside = node.children[1:] if node.type == "simple_expansion" else node.children[1:-1]
        if not inside or inside[0].type not in ("variable_name", "special_variable_name"):
            return unknown
        value = self.get(text_of(inside[0]))
        operator = text_of(inside[1]) if len(inside) > 1 else ""
        if operator in (":-", "-", ":=", "="):
            return self._default(inside, operator, value) or unknown
        return value if value is not None and operator in ("", ":?", "?") else unknown

    def _default(self, inside: list[Node], operator: str, value: Text | None) -> Text | None:
        """``${NAME:-word}``; None where it is not known which of the two."""
        is_set = value is not None if operator in ("-", "=") else value not in (None, (), ("",))
        if is_set or not self.complete:
            return value if is_set else None
        word = tuple(part for child in inside[2:] for part in self.text(child))
        if operator.endswith("="):
            self.values[text_of(inside[0])] = word
        return word or ("",)

    def _output(self, command: str) -> str | None:
        """What a command in ``$(...)`` prints, where the script says it."""
        if re.search(r"swift-grpo-ext\W+path\b", command) and "\n" not in command:
            return PLUGIN
        if _SCRIPT_FOLDER.search(command) and ".." not in command and self.script:
            return self.script.rpartition("/")[0] or "."
        return self.folder or "." if command == "pwd" and self.folder is not None else None

    def _number(self, node: Node) -> int | None:
        """The value of ``$((...))``, of whole numbers; None where it is not known."""
        if node.type == "parenthesized_expression":
            return self._number(node.named_children[0])
        if node.type == "binary_expression" and len(node.children) == 3:
            left = self._number(node.children[0])
            right = self._number(node.children[2])
            operation = _OPERATIONS.get(text_of(node.children[1]))
            if left is None or right is None or operation is None:
                return None
            return operation(left, right) if right or operation not in (floordiv, mod) else None
        name = text_of(node)
        value: Word = name if name.isdecimal() else joined(self.get(name.strip("${}")) or ("",))
        return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value.strip()) else None


def _touch(node: Node, following: Node) -> bool:
    """Whether nothing but a backslash and a line end stands between two nodes."""
    parent = node.parent
    if parent is None or parent.text is None:
        return False
    begin = node.end_byte - parent.start_byte
    between = parent.text[begin : following.start_byte - parent.start_byte]
    return between == b"\\\n"


def _unescaped(source: bytes) -> str:
    """Text between double quotes, without its backslashes."""
    text = source.decode("utf-8", "replace").replace("\\\n", "").translate(_BLANKS)
    return re.sub(r'\\([$`"\\])', r"\1", text)


def _split(pieces: Iterable[tuple[Text, bool]]) -> Iterator[Word]:
    """The words of a word: an unquoted value ends one at each of its blanks."""
    word: list[Word] = []
    quoted_any = False
    for text, quoted in pieces:
        quoted_any |= quoted
        for part in text:
            if quoted or isinstance(part, Unknown):
                word.append(part)
                continue
            first, *others = re.split(r"[ \t\n]+", part)
            word.append(first)
            for other in others:
                yield from _word(word, quoted_any)
                word = [other]
                quoted_any = False
    yield from _word(word, quoted_any)


def _word(parts: list[Word], quoted: bool) -> Iterator[Word]:
    """One word, if it is one; a value that is not known and not quoted may be any number of them."""
    text = "".join(map(written, parts))
    unknown = [part for part in parts if isinstance(part, Unknown)]
    if text and unknown and not quoted and text == unknown[0].name:
        yield Unknown(text, many=True)
    elif text or quoted:
        yield joined(tuple(parts))
