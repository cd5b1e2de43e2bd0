"""Splits shell text into words and operators without running it; linear in its length."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from swift_grpo_ext.doctor.check.arithmetic import calculated

_OPERATORS = ("&&", "||", ">>", "<<", ">&", "<&", "&>", ";;", "|", "&", ";", "(", ")", "<", ">", "\n")
_HEREDOC = re.compile(r"(?<!<)<<-?\s*(['\"]?)(\w+)\1(?!<)")
_EXPANSION = re.compile(
    r"\$\(\((?P<sum>[^()]*(?:\([^()]*\)[^()]*)*)\)\)"
    r"|\$\{(?P<name>\w+)(?:(?P<how>:?[-=?+])(?P<other>[^}]*))?\}|\$(?P<bare>[A-Za-z_]\w*)|\$\((?P<run>[^()]*)\)|`(?P<tick>[^`]*)`"
)
# Blanks inside a substitution that is not known do not split it into words.
_FIELD = re.compile(r"(?:\$\(\([^()]*\)\)|\$\([^()]*\)|`[^`]*`|\S)+")
_ARRAY = re.compile(r"^\$\{(\w+)\[[@*]\]\}$")
Variables = Mapping[str, str]


@dataclass(frozen=True)
class Token:
    """A word, an operator or a comment.

    Attributes:
        kind: ``word``, ``operator`` or ``comment``.
        line: Line that it starts in, from 1.
        text: The operator or comment.
        pieces: Of a word: (text, quote), the quote being ``'``, ``"`` or empty.
    """

    kind: str
    line: int
    text: str = ""
    pieces: tuple[tuple[str, str], ...] = field(default=())

    @property
    def raw(self) -> str:
        """A word's text without its quotes, nothing expanded."""
        return "".join(text for text, _ in self.pieces)

    @property
    def plain(self) -> str:
        """A word's text up to its first quote."""
        return self.pieces[0][0] if self.pieces and not self.pieces[0][1] else ""


def tokens(text: str) -> list[Token]:
    """Tokens of a script, in order; quotes that are never closed run to the end."""
    return list(_Lexer(_without_heredocs(text)).read())


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.line = text, 0, 1
        self.pieces: list[tuple[str, str]] = []
        self.started = 1
        self.found: list[Token] = []

    def read(self) -> list[Token]:
        while self.at < len(self.text):
            self._step(self.text[self.at])
        self._end_word()
        return self.found

    def _step(self, char: str) -> None:
        operator = next((one for one in _OPERATORS if self.text.startswith(one, self.at)), "")
        if char == "\\":
            self._escape()
        elif char in "'\"":
            self._quoted(char)
        elif char == "#" and not self.pieces:
            end = self._until("\n")
            self.found.append(Token("comment", self.line, self.text[self.at : end]))
            self.at = end
        elif char == "$" and self.text[self.at + 1 : self.at + 2] in ("(", "{"):
            self._add(self._substitution(), "")
        elif char == "`":
            end = min(self._until("`", self.at + 1) + 1, len(self.text))
            self._add(self._taken(end), "")
        elif operator:
            self._operator(operator)
        elif char in " \t":
            self._end_word()
            self.at += 1
        else:
            self._add(self._taken(self.at + 1), "")

    def _operator(self, operator: str) -> None:
        if operator[0] in "<>" and self.pieces and self.pieces[0][0].isdigit():
            self.pieces = []  # a file descriptor: 2>&1
        self._end_word()
        self.found.append(Token("operator", self.line, operator))
        self.at += len(operator)
        self.line += operator == "\n"

    def _escape(self) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if following == "\n":
            self.line += 1
        else:
            self._add(following, "'")
        if following == " " and self.text[self.at : self.at + 1] == "#":
            self._end_word()  # meant as a comment behind a continuation

    def _quoted(self, quote: str) -> None:
        self.at += 1
        begin, text = self.at, ""
        while self.at < len(self.text) and self.text[self.at] != quote:
            char = self.text[self.at]
            if (
                quote == '"'
                and char == "\\"
                and self.text[self.at + 1 : self.at + 2] in ('"', "\\", "$", "\n")
            ):
                escaped = self.text[self.at + 1]
                text += "" if escaped == "\n" else escaped
                self.at += 2
            elif quote == '"' and self.text.startswith("$(", self.at):
                text += self._substitution()
            else:
                text += char
                self.at += 1
        self.line += self.text.count("\n", begin, self.at)
        self.at += 1
        self._add(text, quote)

    def _substitution(self) -> str:
        """Of ``$(...)`` or ``${...}``, to the bracket that closes it."""
        opening = self.text[self.at + 1]
        closing, depth, at = {"(": ")", "{": "}"}[opening], 0, self.at + 1
        while at < len(self.text):
            depth += (self.text[at] == opening) - (self.text[at] == closing)
            at += 1
            if depth == 0:
                break
        return self._taken(at)

    def _taken(self, end: int) -> str:
        taken, self.at = self.text[self.at : end], end
        return taken

    def _until(self, what: str, begin: int | None = None) -> int:
        found = self.text.find(what, self.at if begin is None else begin)
        return len(self.text) if found < 0 else found

    def _add(self, text: str, quote: str) -> None:
        if not self.pieces:
            self.started = self.line
        if self.pieces and self.pieces[-1][1] == quote == "":
            text = self.pieces.pop()[0] + text
        self.pieces.append((text, quote))

    def _end_word(self) -> None:
        if self.pieces:
            self.found.append(Token("word", self.started, pieces=tuple(self.pieces)))
            self.pieces = []


def _without_heredocs(text: str) -> str:
    """The text with the lines of here-documents emptied."""
    lines, end = [], ""
    for line in text.split("\n"):
        if end:
            lines.append("")
            end = "" if line.strip() == end else end
            continue
        lines.append(line)
        match = _HEREDOC.search(line) if not line.lstrip().startswith("#") else None
        end = match[2] if match else ""
    return "\n".join(lines)


def expanded(
    word: Token,
    variables: Variables,
    arrays: Mapping[str, Sequence[str]],
    output_of: Callable[[str], str | None],
) -> list[str]:
    """What the shell makes of a word; a variable that nobody sets here stays as it is written.

    Args:
        word: The word.
        variables: Values by name.
        arrays: Values of arrays by name.
        output_of: Output of a command in ``$(...)``; None if it is not known.
    """
    array = _ARRAY.match(word.raw)
    if array and array[1] in arrays:
        return list(arrays[array[1]])
    words, quoted = [""], any(quote for _, quote in word.pieces)
    for text, quote in word.pieces:
        value = text if quote == "'" else _EXPANSION.sub(lambda m: _value(m, variables, output_of), text)
        parts = [value] if quote or value == text else (_FIELD.findall(value) or [""])
        words[-1] += parts[0]
        words += parts[1:]
    return [one for one in words if one or quoted]


def _value(match: re.Match[str], variables: Variables, output_of: Callable[[str], str | None]) -> str:
    if match["sum"] is not None:
        result = calculated(match["sum"], variables)
        return match[0] if result is None else str(result)
    if match["run"] is not None or match["tick"] is not None:
        command = (match["run"] or match["tick"] or "").strip()
        if command.startswith("expr "):
            result = calculated(command[5:], variables)
            return match[0] if result is None else str(result)
        output = output_of(command)
        return match[0] if output is None else output
    name, how, other = match["name"] or match["bare"], match["how"] or "", match["other"] or ""
    if how.endswith("+"):
        return other if name in variables else ""
    if name in variables and (variables[name] or not how.startswith(":")):
        return variables[name]
    return other if how.endswith(("-", "=")) else match[0]
