"""What the shell makes of a word, as far as the script says it; nothing is run.

Text that the script does not say stands between two marks, so that it is never taken for a value.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from operator import add, floordiv, mod, mul, sub

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from swift_grpo_ext.doctor.check.words import (
    BEGIN,
    MOST_WORDS,
    PLUGIN,
    braced,
    is_known,
    opened,
    split,
    unescaped_in_quotes,
    unknown,
)

_SUMS: dict[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul, "/": floordiv, "%": mod}
_EXPANSIONS = ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion")
_SCRIPT_FOLDER = re.compile(r"""dirname\s+(--\s+)?["']?\$\{?(0|BASH_SOURCE)""")

# Blanks of web pages: the shell takes them for letters, the parser for blanks.
_LETTERS = {
    ord(blank): 0xE010 + number for number, blank in enumerate("\u00a0\u200b\u200c\u200d\u2060\u3000\ufeff")
}
_BLANKS = {mark: blank for blank, mark in _LETTERS.items()}


@lru_cache(maxsize=1)
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def parsed(text: str) -> Node:
    """The syntax tree of a script."""
    text = text.replace("\r\n", "\n").translate(_LETTERS)
    text = re.sub(r"`#[^`\n]*`", lambda comment: " " * len(comment[0].encode()), text)
    return _parser().parse(text.encode("utf-8", "replace")).root_node


def text_of(node: Node) -> str:
    """Its source."""
    return (node.text or b"").decode("utf-8", "replace")


def as_written(word: str) -> str:
    """With the blanks that are letters to the shell."""
    return word.translate(_BLANKS)


@dataclass
class Variables:
    """What ``$NAME`` and ``$1`` stand for while a script is read."""

    inherited: dict[str, str]  # what the script starts with
    own: dict[str, str] = field(default_factory=dict)  # variables that it sets
    arrays: dict[str, list[str]] = field(default_factory=dict)  # its arrays
    positional: list[str] | None = None  # what it is called with; None if that is not known
    script: str = ""  # its own path
    # where it is, relative to where it was started; None after a `cd` to somewhere not known
    folder: str | None = ""
    complete: bool = True  # A name that is not set here is set nowhere
    glob: Callable[[str, str], list[str]] = lambda folder, pattern: []  # files of a pattern

    def get(self, name: str) -> str | None:
        """A variable's value; None if nobody sets it."""
        if name == "PWD" and self.folder:
            return self.folder
        if name.isdecimal() and name != "0":
            given = self.positional or []
            return given[int(name) - 1] if int(name) <= len(given) else None
        if name in ("0", "BASH_SOURCE"):
            return self.script or None
        found = self.own.get(name, self.inherited.get(name))
        return found if found is not None or name not in self.arrays else "".join(self.arrays[name][:1])

    def fields(self, node: Node) -> list[str]:
        """The words that a word becomes."""
        whole = self._array(node)
        if whole is not None:
            return whole
        pieces = self._pieces(node)
        words, any_quoted = [""], any(quoted for _, quoted in pieces)
        for text, quoted in pieces:
            parts = [text] if quoted or not is_known(text) else split(text)
            words[-1] += parts[0]
            words += parts[1:]
        if len(pieces) == 1 and not any_quoted and words[0].startswith(BEGIN):
            return [opened(words[0], marked=True)]
        if node.type in ("word", "concatenation", "brace_expression") and not any_quoted:
            words = [
                file
                for word in words
                for one in islice(braced(word), MOST_WORDS)
                for file in self._globbed(one)
            ]
        return [word for word in words if word or any_quoted]

    def text(self, node: Node) -> str:
        """Its value where the shell does not split words: in an assignment."""
        return "".join(text for text, _ in self._pieces(node))

    def filled(self, node: Node, begin: int, end: int) -> str:
        """Source between two bytes of a quoted text, its expansions filled in."""
        source, start, found = node.text or b"", node.start_byte, []
        for child in node.children:
            if child.type in _EXPANSIONS and begin <= child.start_byte < end:
                found.append(unescaped_in_quotes(source[begin - start : child.start_byte - start]))
                found.append(self._expanded(child))
                begin = child.end_byte
        return "".join([*found, unescaped_in_quotes(source[begin - start : end - start])])

    def _pieces(self, node: Node) -> list[tuple[str, bool]]:
        """(text, quoted) of a word's parts."""
        kind, text = node.type, text_of(node)
        if kind == "concatenation":
            return [piece for child in node.children for piece in self._pieces(child)]
        if kind == "raw_string":
            return [(text[1:-1], True)]
        if kind == "ansi_c_string":
            return [(text[2:-1].replace("\\n", "\n").replace("\\t", "\t").replace("\\'", "'"), True)]
        if kind == "string":
            return [(self.filled(node, node.start_byte + 1, node.end_byte - 1), True)]
        if kind == "translated_string":
            return self._pieces(node.children[-1])
        if kind in _EXPANSIONS:
            return [(self._expanded(node), False)]
        if kind == "process_substitution":
            return [(unknown(text), True)]
        return [(re.sub(r"\\(.)", r"\1", text.replace("\\\n", "")), False)]

    def _expanded(self, node: Node) -> str:
        if node.type == "arithmetic_expansion":
            number = self._sum(node.named_children[0]) if node.named_children else None
            return unknown(text_of(node)) if number is None else str(number)
        if node.type == "command_substitution":
            return self._output(text_of(node))
        if node.type == "simple_expansion":
            return self._value(text_of(node)[1:], node)
        return self._parameter(node)

    def _value(self, name: str, node: Node) -> str:
        if name in ("@", "*") and self.positional is not None:
            return " ".join(self.positional)
        found = self.get(name)
        return unknown(text_of(node)) if found is None else found

    def _parameter(self, node: Node) -> str:
        """``${NAME}`` with its operator."""
        inside = node.children[1:-1]
        if not inside or inside[0].type not in ("variable_name", "special_variable_name", "subscript"):
            return unknown(text_of(node))
        if inside[0].type == "subscript":
            return self._element(inside[0], node)
        name, how = text_of(inside[0]), text_of(inside[1]) if len(inside) > 1 else ""
        found = self.get(name)
        if not how:
            return self._value(name, node)
        word = "".join(self.text(child) for child in inside[2:])
        if how in (":-", "-", ":=", "="):
            if found or (found is not None and not how.startswith(":")):
                return found
            if self.complete and how.endswith("="):
                self.own[name] = word
            return word if self.complete else unknown(text_of(node))
        if how in (":+", "+") and (found is not None or self.complete):
            return word if found else ""
        return found if found and how.endswith("?") else unknown(text_of(node))

    def _element(self, node: Node, whole: Node) -> str:
        name, index = text_of(node.children[0]), text_of(node.children[2])
        values = self.arrays.get(name)
        if values is None and name == "BASH_SOURCE" and self.script:
            return self.script
        if values is None or (index not in ("@", "*") and not index.isdecimal()):
            return unknown(text_of(whole))
        if index.isdecimal():
            return values[int(index)] if int(index) < len(values) else ""
        return " ".join(values)

    def _array(self, node: Node) -> list[str] | None:
        """The words of ``"${ARGS[@]}"`` and ``"$@"`` standing alone; None for any other word."""
        match = re.fullmatch(r'"?\$(?:\{?([@*])\}?|\{(\w+)\[[@*]\]\})"?', text_of(node))
        if match is None:
            return None
        values = self.positional if match[1] else self.arrays.get(match[2])
        return [opened(text_of(node))] if values is None else list(values)

    def _output(self, source: str) -> str:
        """Output of a command in ``$(...)``, where it can be said without running it."""
        command = source.strip("$()`").strip()
        if re.search(r"swift-grpo-ext\W+path\b", command) and "\n" not in command:
            return PLUGIN
        if _SCRIPT_FOLDER.search(command) and not re.search(r"\.\.", command):
            return (self.script.rpartition("/")[0] or ".") if self.script else unknown(source)
        if match := re.fullmatch(r"expr\s+(.+)", command):
            tree = parsed(f"$(({match[1]}))")
            while tree.type != "arithmetic_expansion" and tree.named_children:
                tree = tree.named_children[0]
            return self._expanded(tree) if tree.type == "arithmetic_expansion" else unknown(source)
        if command == "pwd" and self.folder is not None:
            return self.folder or "."
        found = re.fullmatch(r"(?:which|command -v|type -p)\s+([\w.-]+)", command)
        return found[1] if found else unknown(source)

    def _sum(self, node: Node) -> int | None:
        if node.type == "parenthesized_expression":
            return self._sum(node.named_children[0])
        if node.type == "unary_expression" and text_of(node).startswith("-"):
            inner = self._sum(node.named_children[0])
            return None if inner is None else -inner
        if node.type == "binary_expression" and len(node.children) == 3:
            left, right = self._sum(node.children[0]), self._sum(node.children[2])
            function = _SUMS.get(text_of(node.children[1]))
            if left is None or right is None or function is None:
                return None
            return function(left, right) if right or function not in (floordiv, mod) else None
        name = text_of(node)
        value = name if node.type in ("number", "word") and name.isdecimal() else self.get(name.strip("${}"))
        return int(value) if value is not None and re.fullmatch(r"-?\d{1,18}", value.strip()) else None

    def _globbed(self, word: str) -> Iterable[str]:
        if not is_known(word) or not re.search(r"[*?]|\[.+\]", word):
            return [word]
        if self.folder is None:
            return [unknown(word)]
        return sorted(self.glob(self.folder, word)) or [word]
