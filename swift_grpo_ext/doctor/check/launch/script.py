"""Follows a plain launch script: assignments, exports, arrays and commands of ms-swift. Nothing is executed.

What a branch, a loop, a function or a substitution decides is not known; other files, other machines and
here-documents are not followed.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from swift_grpo_ext.doctor.check.launch import commands
from swift_grpo_ext.doctor.check.launch.commands import Command, Launch
from swift_grpo_ext.doctor.check.launch.words import Array, Statement, Variables, statements
from swift_grpo_ext.doctor.check.unknown import Unknown, Word, joined, written
from swift_grpo_ext.errors import SwiftGrpoExtError

_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_OPTION = re.compile(r"[-–—]+[A-Za-z]")
_SCRIPT = re.compile(
    r"(?:(?:bash|sh|zsh|sbatch|qsub|srun) (?:-\S+ )*)?(\S{1,60}\.(?:sh|bash|slurm|sbatch))(?: |$)"
)
_FUNCTION = re.compile(r"^\s*(function\s+\w|[\w-]{1,40}\s{0,4}\(\s{0,4}\)\s{0,4}\{)", re.MULTILINE)
_PROMPT = re.compile(r"^[ \t]{0,20}(\$ |!(?=\w))", re.MULTILINE)  # of a document or a notebook
_HERE = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1")
_DECLARES = ("export", "declare", "typeset", "readonly", "local")
# Files that people source for their shell, not for a run's ranks; and programs that print variables for it.
_OF_THE_SHELL = re.compile(
    r"(activate|conda\.sh|\.\w*rc|profile|set_env\.sh)$|\b(conda|mamba|micromamba|pyenv)\b"
)
# Commands that write no file that a run reads.
_WRITE_NOTHING = re.compile(
    r"[:\[(.].*|cat|cd|conda|date|echo|env|eval|exit|hostname|kill|ls|mkdir|module|nvidia-smi|pip|pkill|printf|ps|pwd|read"
    "|rm|set|shopt|sleep|source|swift|test|touch|trap|true|ulimit|unset|wait|wandb|which"
)
_MOST_LETTERS = 2**18


def read_script(text: str, environ: Mapping[str, str] | None = None) -> Launch:
    """Read a shell script that is started with these variables.

    A command that a line cuts short is read as it was meant, so that the other checks still see all of it.

    Raises:
        SwiftGrpoExtError: it is no text of a plain shell, or longer than people write.
    """
    if "\0" in text or len(text) > _MOST_LETTERS:
        what = "not the text of a shell" if "\0" in text else "longer than a launch script is"
        raise SwiftGrpoExtError(what, fix="give the launch script itself")
    reader = _Reader(environ or {}, text)
    text = _PROMPT.sub("", text.replace("\r\n", "\n"))
    for statement in statements(reader.without_here_documents(text)):
        if statement.words[0] == "exit" and statement.is_sure:
            break
        reader.follow(statement)
    return reader.launch


class _Reader:
    """What is known of a script at one of its statements."""

    def __init__(self, environ: Mapping[str, str], text: str) -> None:
        self.variables = Variables(environ)
        self.launch = Launch(text=text)
        self.exported = set(environ)
        self.exports_all = "set -a" in text
        self.moved = self.makes_files = False
        self.is_swift = False  # the last command was one of `swift`

    def without_here_documents(self, text: str) -> str:
        """The text with empty lines in place of here-documents."""
        lines = []
        end = ""
        for number, line in enumerate(text.split("\n"), start=1):
            opener = None if end or line.lstrip().startswith("#") else _HERE.search(line)
            lines.append("" if end else line.replace(opener[0], " ") if opener else line)
            if end:
                self._not_followed("a here-document", number, line)
            end = opener[2] if opener else "" if line.strip() == end else end
        return "\n".join(lines)

    def _not_followed(self, place: str, line: int, text: str) -> None:
        """A ``swift rlhf`` that stands where it is not read."""
        if commands.INNER.search(text):
            self.launch.not_followed.append(f"{place} (line {line})")

    def follow(self, statement: Statement) -> None:
        """Follow one statement."""
        words = list(statement.words)
        own: list[str | Array] = []
        while words and (isinstance(words[0], Array) or _ASSIGNS.match(words[0])):
            own.append(words.pop(0))
        head = str(words[0]) if words else ""
        if not words or head in _DECLARES:
            exports = head == "export" or words[1:2] in (["-x"], ["-gx"])
            for word in (*own, *(words[1:] if head != "local" else ())):
                self._declare(word, exports=exports, is_sure=statement.is_sure)
            return
        texts = [text for word in words for text in self.variables.words(str(word))]
        text = " ".join(map(written, texts))
        start = commands.start_of(texts)
        if start and start.is_followed:
            self._swift(start, own, statement)
        elif self.is_swift and _OPTION.match(text):  # options that the command has lost
            last = self.launch.commands[-1]
            self.launch.commands[-1] = replace(last, words=(*last.words, *texts))
            self.launch.cuts.append(statement.line)
        else:
            self.is_swift = False
            self._other(head.rpartition("/")[2], text, statement)

    def _declare(self, word: str | Array, *, exports: bool, is_sure: bool) -> None:
        """``NAME=value``, ``NAME+=value`` or an array, and a name that is exported."""
        text = word.name if isinstance(word, Array) else word
        name, _, value = text.partition("=")
        name, adds = name.rstrip("+"), name.endswith("+")
        before = self.variables.values.get(name) if adds else ()
        known: Word | tuple[Word, ...]
        if not _ASSIGNS.match(text):
            self._sets_anything(text)
        elif isinstance(word, Array):
            items = [part for item in word.items for part in self.variables.words(item)]
            rest = items if is_sure else [Unknown(f"${{{name}[@]}}", many=True)]
            self._put(name, (*(before if isinstance(before, tuple) else ()), *rest))
        else:
            self.makes_files |= re.search(r"\b(download|clone|wget|curl)\b", value) is not None
            known = self.variables.value(value) if is_sure else Unknown(f"${name}")
            self._put(name, joined((before, known)) if isinstance(before, (str, Unknown)) else known)
        if exports:
            self.exported.add(name)

    def _put(self, name: str, value: Word | tuple[Word, ...]) -> None:
        self.variables.values[name] = value
        self.launch.names.add(name)
        if self.exports_all:
            self.exported.add(name)

    def _sets_anything(self, source: str) -> None:
        """Variables that a file or a command sets: ``source ranks.env``, ``export $(cat .env)``."""
        if not re.fullmatch(r"[-\w]+", source) and not _OF_THE_SHELL.search(source):
            is_plain = re.fullmatch(r"[\w ./=~-]{1,60}", source)
            self.variables.set_by.append(source if is_plain else "what a command prints")

    def _other(self, head: str, text: str, statement: Statement) -> None:
        """Follow a command of another program, which may change variables, folder and files."""
        if head in ("source", ".", "eval") or text.partition(" ")[2].startswith("= "):
            self._sets_anything(text)
        elif script := _SCRIPT.match(text):
            self.launch.not_followed.append(f"{script[1]} (line {statement.line})")
        for name in text.split()[1:] if head in ("read", "mapfile", "let") else ():
            self._put(name, Unknown(f"${name}"))
        self.moved |= head in ("cd", "pushd") and text != "cd ."
        self.makes_files |= statement.writes or not _WRITE_NOTHING.fullmatch(head)
        if head not in commands.PRINT:
            self._not_followed(f"the words of {head}", statement.line, text)

    def _swift(self, start: commands.Start, own: list[str | Array], statement: Statement) -> None:
        """A command of ms-swift."""
        values = self.variables.values
        is_called = not statement.is_sure and _FUNCTION.search(self.launch.text) is not None
        more = [Unknown("xargs", many=True)] if start.has("xargs", "parallel") else []
        environ: dict[str, Word | None]
        environ = {name: self.variables.plain(name) for name in values if name in self.exported}
        before = (_ASSIGNS.fullmatch(str(word)) for word in own)
        set_here = {assigns[1]: self.variables.value(assigns[3]) for assigns in before if assigns}
        environ |= set_here | start.environ
        self.launch.names.update(set_here)
        command = Command(
            (start.program, *start.words, *more),
            environ,
            unexported=frozenset(name for name in values if name not in environ),
            waits=statement.is_sure and statement.end not in ("&", "|") and not start.is_detached,
            moved=self.moved,
            makes_files=self.makes_files,
            set_by=" and ".join([*self.variables.set_by, *(["its caller"] if is_called else [])]),
            is_single=start.is_single,
        )
        self.launch.commands.append(command)
        self.is_swift = True
