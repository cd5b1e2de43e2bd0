"""Reads a launch script without running it: variables, swift commands, lines that end a command too early."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from swift_grpo_ext.doctor.check.shell import Token, expanded, tokens

# Stands for the output of $(swift-grpo-ext path); other substitutions stay as they are.
PLUGIN = "<swift-grpo-ext>"
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)(\+?)=")
_ENDS = ("\n", ";", "&", "&&", "|", "||", "(", ")", ";;")
_REDIRECTIONS = ("<", ">", ">>", "<<", ">&", "<&", "&>")
_PRINTERS = ("echo", "printf", "cat", "#")
_LAUNCHER_FLAGS = {"nproc_per_node": "NPROC_PER_NODE", "nnodes": "NNODES", "node_rank": "NODE_RANK"}


@dataclass(frozen=True)
class Command:
    """One ``swift`` command with the variables it sees.

    Attributes:
        words: ``swift``, the subcommand, its arguments.
        environ: Variables that it sees, or was meant to see: those that are set and not exported too.
        unexported: Names of the latter.
    """

    words: tuple[str, ...]
    environ: Mapping[str, str]
    unexported: frozenset[str] = frozenset()

    @property
    def subcommand(self) -> str:
        """``rlhf``, ``rollout``, ..."""
        return self.words[1] if len(self.words) > 1 else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words after the subcommand."""
        return self.words[2:]


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


@dataclass(frozen=True)
class Launch:
    """What a script starts.

    Attributes:
        commands: The ``swift`` commands, in order.
        cuts: Places where a command ends too early.
        windows: Lines end in carriage return and line feed.
        names: Variables that the script sets.
        used: Variables that the script itself reads.
    """

    commands: tuple[Command, ...]
    cuts: tuple[Cut, ...] = ()
    windows: bool = False
    names: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()

    def all(self, subcommand: str) -> tuple[Command, ...]:
        """The commands of that name."""
        return tuple(command for command in self.commands if command.subcommand == subcommand)

    def first(self, subcommand: str) -> Command | None:
        """The first command of that name."""
        return next(iter(self.all(subcommand)), None)


def read_script(text: str, environ: Mapping[str, str] | None = None) -> Launch:
    """Read a shell script of assignments and swift commands; nothing is executed.

    A command that a line cuts short is read as it was meant, so that the other checks still see all of it.

    Args:
        text: The script.
        environ: Variables that it inherits.
    """
    windows = "\\\r\n" in text
    cuts: list[Cut] = []
    state = _State(dict(environ or {}))
    for words in _commands(_joined(tokens(text.replace("\r\n", "\n")), cuts)):
        state.run(words)
    used = frozenset(re.findall(r"\$\{?([A-Za-z_]\w*)", text))
    names = state.names | {name for command in state.commands for name in command.environ} - set(
        environ or {}
    )
    return Launch(tuple(state.commands), tuple(cuts), windows, frozenset(names), used)


def _joined(found: list[Token], cuts: list[Cut]) -> Iterator[Token]:
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


def _commands(found: Iterator[Token]) -> Iterator[list[Token]]:
    """Words of each simple command; an array's brackets stay in it as operators."""
    words: list[Token] = []
    in_array = skip = False
    for token in found:
        if token.kind == "word":
            if not skip:
                words.append(token)
            skip = False
        elif token.text == "(" and words and _ASSIGNMENT.match(words[-1].raw) and words[-1].raw.endswith("="):
            in_array = True
            words.append(token)
        elif in_array:
            if token.text == ")":
                in_array = False
                words.append(token)
        elif token.text in _REDIRECTIONS:
            skip = True
        elif token.text in _ENDS:
            yield words
            words, skip = [], False
    yield words


@dataclass
class _State:
    """The shell's variables while the script is read."""

    inherited: dict[str, str]
    own: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    commands: list[Command] = field(default_factory=list)
    exports_all: bool = False

    def run(self, words: list[Token]) -> None:
        words = self._array(words)
        before: dict[str, str] = {}
        while words and (match := _ASSIGNMENT.match(words[0].plain)):
            value = self._assigned(words.pop(0), {**self.own, **before})
            before[match[1]] = (self.own.get(match[1], "") if match[2] else "") + value
        if not words:
            self._set(before)
            return
        text = [value for word in words for value in expanded(word, self._all(before), self.arrays, _output)]
        if text and text[0] in ("export", "declare", "typeset"):
            self._export(words[1:], exports=text[0] == "export" or "-x" in text)
        elif text[:2] == ["set", "-a"] or text[:3] == ["set", "-o", "allexport"]:
            self.exports_all = True
        elif text and text[0].rsplit("/", 1)[-1] in ("bash", "sh") and "-c" in text[:-1]:
            inner = read_script(text[text.index("-c") + 1], self._seen(before))
            self.commands += inner.commands
        elif text and text[0] not in _PRINTERS:
            self._start(text, before)

    def _start(self, words: list[str], before: dict[str, str]) -> None:
        begin = _begin(words)
        if begin is None:
            return
        prefix, rest = words[:begin], words[begin:]
        for word in prefix:  # env A=1 swift ..., torchrun --nproc_per_node 8 ...
            if match := _ASSIGNMENT.match(word):
                before[match[1]] = word[match.end() :]
        before |= _launcher_variables(prefix)
        unexported = frozenset(set(self.own) - self.exported - set(before) - set(self.inherited))
        self.commands.append(Command(("swift", *rest), self._seen(before), unexported))

    def _seen(self, before: dict[str, str]) -> dict[str, str]:
        return {**self.inherited, **self.own, **before}

    def _all(self, before: dict[str, str]) -> dict[str, str]:
        """What ``$NAME`` is: a variable before a command is not seen by the command's own words."""
        return {**self.inherited, **self.own, **{k: v for k, v in before.items() if k not in self.own}}

    def _array(self, words: list[Token]) -> list[Token]:
        if len(words) < 2 or words[1].kind != "operator":
            return words
        name = words[0].raw.rstrip("+=")
        values = [
            value
            for word in words[2:]
            if word.kind == "word"
            for value in expanded(word, self._all({}), self.arrays, _output)
        ]
        self.arrays[name] = (self.arrays.get(name, []) if "+=" in words[0].raw else []) + values
        return []

    def _assigned(self, word: Token, variables: dict[str, str]) -> str:
        values = expanded(word, {**self.inherited, **variables}, self.arrays, _output)
        return " ".join(values).partition("=")[2]

    def _set(self, values: Mapping[str, str]) -> None:
        self.own.update(values)
        self.names.update(values)
        if self.exports_all:
            self.exported.update(values)

    def _export(self, words: list[Token], *, exports: bool) -> None:
        for word in words:
            match = _ASSIGNMENT.match(word.raw)
            if match:
                self._set({match[1]: self._assigned(word, self.own)})
            if exports:
                self.exported.add(match[1] if match else word.raw)


def _begin(words: Sequence[str]) -> int | None:
    """Where the subcommand stands, of ``swift rlhf``, ``python -m swift.cli.rlhf`` or ``.../cli/rlhf.py``."""
    for index, word in enumerate(words):
        if word.rsplit("/", 1)[-1] == "swift" and index + 1 < len(words):
            return index + 1
        module = re.search(r"(?:^swift\.cli\.|swift/cli/)(\w+?)(?:\.py)?$", word)
        if module and isinstance(words, list):
            words[index] = module[1]
            return index
    return None


def _launcher_variables(words: Sequence[str]) -> dict[str, str]:
    """Ranks that torchrun's own options ask for."""
    found = {}
    for index, word in enumerate(words):
        name, _, value = word.lstrip("-").replace("-", "_").partition("=")
        if word.startswith("--") and name in _LAUNCHER_FLAGS:
            found[_LAUNCHER_FLAGS[name]] = value or (words[index + 1] if index + 1 < len(words) else "")
    return found


def _output(command: str) -> str | None:
    words = command.split()
    return PLUGIN if words[:2] == ["swift-grpo-ext", "path"] else None
