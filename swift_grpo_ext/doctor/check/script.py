"""Reads a plain launch script: assignments, exports, arrays, ``${A:-b}``, ``cd``, ms-swift. Nothing is run.

Values set by a branch, a loop, a function or a substitution are unknown; nothing else is followed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from swift_grpo_ext.doctor.check.unknown import PLUGIN, Unknown, Word, written
from swift_grpo_ext.errors import SwiftGrpoExtError

_BRACKETS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_EXPANDED = rf"\$\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}|[$<>]{_BRACKETS}|`[^`]*`|\$(?:\w+|[@*#?$!-])"
_DOUBLE = rf'"(?:[^"\\$`]|\\.|\${_BRACKETS}|`[^`]*`|\$(?!\())*"'
_WORD = rf"(?:'[^']*'|{_DOUBLE}|{_EXPANDED}|\\.|\$(?![({{])|(?<=[^\s;&|()])#|[^\s;&|<>()'\"`\\$#])+"
_FILE = r"(?![<>]\()\d*(?:<<<|&>>?|[<>]&|>>|>\||[<>])"
_ARRAY = rf"[A-Za-z_]\w*\+?=\((?:[ \t]|\\?\n|(?<=[\s(])#[^\n]*|{_WORD})*\)"
_TOKENS = re.compile(rf"{_FILE}[ \t]*(?:{_WORD})?|{_ARRAY}|{_WORD}", re.DOTALL)
_STATEMENT = re.compile(
    rf"((?:[^\S\n]|\\\n|{_TOKENS.pattern})*)(#[^\n]*|\n|;;?|&&|\|\|?&?|&|[()]|(.))", re.DOTALL
)
_IN_QUOTES = re.compile(rf"{_EXPANDED}|\\.", re.DOTALL)
_PARTS = re.compile(rf"'[^']*'|{_DOUBLE}|{_IN_QUOTES.pattern}", re.DOTALL)
_ITEM = re.compile(rf"(?<!\S)#[^\n]*|({_WORD})", re.DOTALL)  # of an array: a comment, or a word
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
_OPENS = ("if", "for", "while", "until", "case", "select", "{")  # blocks
_CLOSES = ("fi", "done", "esac", "}")
_IN_BETWEEN = ("then", "else", "elif", "do", "!", "time", "function")
# Commands that write no file that a run reads; then files that are sourced for the shell, not for the ranks.
_WRITES_NOTHING = re.compile(
    r"[:\[(.].*|cat|cd|conda|date|echo|env|eval|exit|export|hostname|kill|ls|mkdir|module|nvidia-smi|pip|pkill|printf|ps"
    "|pwd|read|rm|set|shopt|sleep|source|test|touch|trap|true|ulimit|unset|wait|wandb|which"
)
_OF_THE_SHELL = re.compile(
    r"(activate|conda\.sh|\.\w*rc|profile|set_env\.sh)$|\b(conda|mamba|micromamba|pyenv)\b|^[-\w]+$"
)
_FUNCTION = re.compile(r"^\s*(function\s+\w|[\w-]{1,40}\s{0,4}\(\s{0,4}\)\s{0,4}\{)", re.MULTILINE)
_MOST_NESTED, _MOST_LETTERS = 100, 2**16  # nested blocks; characters of a script or a value
_SUBCOMMAND = re.compile(
    "pt|sft|infer|merge[-_]lora|web[-_]ui|deploy|rollout|rlhf|grpo|sample|export|eval|app"
)
_PROGRAM = re.compile(
    r"(?:.*/)?(swift|megatron)|(?:.*\W)?(?:swift[./]cli[./]|cli/(?=.*\.py$))(_megatron[./])?(\w+?)(?:\.py)?"
)
# Allowed before a command of ms-swift: programs that start the rest of the line here, and variables.
_STARTS = re.compile(
    r"(?:(?:\S*/)?(?:env|nohup|time|exec|eval|command|sudo|numactl|taskset|nice|ionice|timeout|stdbuf"
    r"|setsid|python[\d.]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|conda|mamba|micromamba|uv|poetry|ray"
    r"|srun)(?= |$)|\$|[A-Z_]+=|[\d,]+(?= |$)|$)(?!.*\b(?:docker|kubectl|singularity|apptainer)\b)",
    re.DOTALL,
)
_OF_A_FILE = re.compile(r".*\b(?:torchrun|deepspeed)\b.*|.*-m", re.DOTALL)  # they look for a file `swift`
_LAUNCHER = re.compile(
    r"\b(?:(torchrun|torch\.distributed\.(?:run|launch))|accelerate|deepspeed|mpirun|mpiexec"
    r"|srun(?=.* \S*python))\b"
)


@dataclass(frozen=True, eq=False)
class Command:
    """One ``swift`` or ``megatron`` command with its environment."""

    words: tuple[Word, ...] = ("", "")  # `swift`, the subcommand, its arguments
    environ: Mapping[str, Any] = field(default_factory=dict)  # variables that it sees: text, or Unknown
    unexported: frozenset[str] = frozenset()  # names that the script sets but the command does not see
    waits: bool = False  # the script continues only after it has ended
    # Folders that relative paths may refer to: where it is started, and for a script its own folder; empty if
    # unknown.
    folders: tuple[Path, ...] = (Path(),)
    makes_files: bool = False  # a program that ran before may have written any file
    set_by: str = ""  # a source that may set any variable; empty: variables missing in `environ` are not set
    is_single: bool = False  # started by python, so one process regardless of the variables

    @property
    def subcommand(self) -> str:
        """``rlhf``, ``rollout``, ..."""
        return written(self.words[1])


@dataclass
class Launch:
    """Facts read from a script; empty for a command without a script."""

    commands: list[Command] = field(default_factory=list)  # the `swift` commands so far
    cuts: list[int] = field(default_factory=list)  # lines with options cut off from the command above
    text: str = ""  # the script itself

    def all(self, *subcommands: str) -> list[Command]:
        """The commands with one of these subcommands."""
        return [command for command in self.commands if command.subcommand in subcommands]


def read_script(
    text: str, environ: Mapping[str, str] | None = None, folders: tuple[Path, ...] = (Path(),)
) -> Launch:
    """Read a shell script that is started with these variables, in one of these folders.

    A command that a line cuts short is read as intended, so that the other checks still see all of it.

    Raises:
        SwiftGrpoExtError: it is not the text of a plain shell script, or longer than people write.
    """
    if "\0" in text or len(text) > _MOST_LETTERS:
        what = "not the text of a shell" if "\0" in text else "longer than a launch script is"
        raise SwiftGrpoExtError(what, fix="give the launch script itself")
    plain = re.sub(
        r"^[ \t]{0,20}(\$ |!(?=\w))", "", text.replace("\r\n", "\n"), flags=re.MULTILINE
    )  # a prompt
    reader = _Reader(Launch(text=text), folders, dict(environ or {}), set(environ or ()))
    for statement in statements(_HERE.sub(_without_here_document, plain)):
        if statement.words[0] == "exit" and statement.is_sure:
            break
        reader.follow(statement)
    return reader.launch


def _without_here_document(match: re.Match[str]) -> str:
    return match[3] + "\n" * match[4].count("\n") if match[2] else match[0]


class Statement(NamedTuple):
    """A simple command, an assignment or both."""

    words: list[str]  # as written; an array is one word, and so is a redirection with its file
    end: str  # the text that ends it
    line: int  # line number of its first word
    is_sure: bool  # it is always executed, exactly once


def statements(text: str) -> Iterator[Statement]:
    """The statements of a script, in order.

    Raises:
        SwiftGrpoExtError: a quote or a bracket is not closed, or blocks are nested too deeply.
    """
    blocks = brackets = 0  # number of open ones
    behind = "\n"
    for match in _STATEMENT.finditer(f"{text}\n\n"):
        body, end = match[1], match[2]
        first = match.end(1) - len(body.lstrip(" \t\\\n"))
        line = text.count("\n", 0, first) + 1
        if match[3] or blocks + brackets > _MOST_NESTED:
            fix = "`bash -n` names what is open"
            raise SwiftGrpoExtError("not plain bash", where=f"line {line}", fix=fix)
        words = [word for word in _TOKENS.findall(body.replace("\\\n", "")) if word.strip("\\ \t\n")]
        while words and words[0] in (*_OPENS, *_IN_BETWEEN, *_CLOSES):
            blocks += (words[0] in _OPENS) - (words[0] in _CLOSES)
            behind_it = words[1:] * (words[0] != "case")
            words = ["read", *words[1:2]] if words[0] in ("for", "select") else behind_it
        if words and end != "(" and (end != ")" or brackets):
            yield Statement(words, end, line, not (blocks or brackets) and behind not in ("&&", "||"))
        brackets = max(0, brackets + (end == "(") - (end == ")"))
        behind = end


@dataclass
class _Reader:
    """State of reading a script, at one of its statements."""

    launch: Launch
    folders: tuple[Path, ...]  # as in `Command`
    values: dict[str, Word | tuple[Word, ...]]  # of variables; for an array its words
    exported: set[str]
    set_by: str = ""  # a source that may set any variable
    makes_files: bool = False  # a program that ran may have written any file
    is_swift: bool = False  # the last command was a `swift` command

    def follow(self, statement: Statement) -> None:
        """Follow one statement."""
        words = [word for word in statement.words if not re.match(_FILE, word)]
        own = list(takewhile(_ASSIGNS.match, words))
        head, *rest = words[len(own) :] or [""]
        if head == "export" and rest[:1] == ["-n"]:
            head = "unset"
        if head in ("", "export", "declare", "typeset", "readonly", "local"):
            exports = head == "export" or "-x" in rest[:1] or "set -a" in self.launch.text
            for word in own + rest * (head != "local"):
                self._declare(word, exports, statement.is_sure)
            return
        texts = [text for word in (head, *rest) for text in self.words(word)]
        text = " ".join(map(written, texts))
        command = command_of(texts)
        if command:
            self._swift(command, own, statement)
        elif self.is_swift and re.match("[-–—]+[A-Za-z]", text):  # options cut off from the command
            last = self.launch.commands[-1]
            self.launch.commands[-1] = replace(last, words=(*last.words, *texts))
            self.launch.cuts.append(statement.line)
            return
        elif head in ("source", ".", "eval") or re.match(r"\S+ = ", text):
            self._sets_anything(text)
        elif head in ("cd", "pushd", "popd"):
            self._moves("".join(map(written, texts[1:2])), statement.is_sure)
        self.is_swift = command is not None
        is_set = head in ("read", "mapfile", "let", "unset")
        for word in rest if is_set else [head] * ("++" in head):
            name = re.sub(r"\W.*", "", word)
            self.values[name] = Unknown(f"${name}")
        is_server = command is not None and command.subcommand in ("rollout", "deploy")
        is_written = any(re.match(r"\d*&?>", word) for word in statement.words)
        writes = is_written or not _WRITES_NOTHING.fullmatch(head.rpartition("/")[2])
        self.makes_files |= writes and not is_server

    def _moves(self, to: str, is_sure: bool) -> None:
        """``cd`` into a folder that exists here; otherwise the working folder is unknown."""
        known = self.folders if is_sure and to and "$" not in to else ()
        self.folders = tuple(folder / to for folder in known if (folder / to).is_dir())

    def _declare(self, word: str, exports: bool, is_sure: bool) -> None:
        """Assign ``NAME=value``, ``NAME+=value`` or an array, or export a name."""
        name, _, source = word.partition("=")
        name, adds = name.rstrip("+"), name.endswith("+")
        if "=" not in word:
            self._sets_anything(word)
        elif source.startswith("("):
            items = [part for item in _ITEM.findall(source[1:-1]) if item for part in self.words(item)]
            rest = items if is_sure else [Unknown(f"${{{name}[@]}}", many=True)]
            before = self.values.get(name) if adds else ()
            self.values[name] = (*(before if isinstance(before, tuple) else ()), *rest)[:_MOST_LETTERS]
        else:
            self.makes_files |= re.search(r"\b(download|clone|wget|curl)\b", source) is not None
            source = f"${{{name}:-}}{source}" if adds else source
            self.values[name] = self.value(source) if is_sure else Unknown(f"${name}")
        self.exported |= {name} if exports else set()

    def _sets_anything(self, source: str) -> None:
        """Note that a file or command may set any variable: ``source ranks.env``, ``export $(cat .env)``."""
        if not _OF_THE_SHELL.search(source):
            is_plain = re.fullmatch(r"[\w ./=~-]{1,60}", source)
            self.set_by = self.set_by or (source if is_plain else "what a command prints")

    def _plain(self, name: str) -> Word | None:
        """Value of ``$NAME``; for an array its first word; None if it is not set."""
        value = self.values.get(name)
        return next(iter(value), "") if isinstance(value, tuple) else value

    def words(self, source: str) -> list[Word]:
        """The words that a word of the script expands to in a command."""
        if array := _ITEMS.fullmatch(source):
            values = self.values.get(array[1] or "")
            return list(values) if isinstance(values, tuple) else [Unknown(source, many=True)]
        value = self.value(source)
        if re.search(r"[*?]|\[[^\[\]]+\]|\{[^{}]*\}", _PARTS.sub("", source)):
            value = Unknown(source)  # a glob or brace expansion
        is_split = re.fullmatch(_EXPANDED, source, re.DOTALL) is not None
        if isinstance(value, Unknown):
            return [Unknown(value.name, many=is_split or "[@]" in source or "${@" in source)]
        return list(value.split()) if is_split else [value]

    def value(self, source: str, parts: re.Pattern[str] = _PARTS) -> Word:
        """The value of a word without word splitting, as in an assignment."""
        expanded = [self._part(match[0]) for match in parts.finditer(source)]
        filled = iter(expanded)
        text = parts.sub(lambda _match: written(next(filled)), source)
        is_open = len(text) > _MOST_LETTERS or any(isinstance(part, Unknown) for part in expanded)
        return Unknown(text[:_MOST_LETTERS]) if is_open else text

    def _part(self, text: str) -> Word:
        """The value of a quoted or expanded part of a word."""
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
        """Add a command of ms-swift, with the variables that it sees."""
        environ: dict[str, Any] = {name: self._plain(name) for name in self.values if name in self.exported}
        environ |= {name: self.value(source) for name, _, source in (word.partition("=") for word in own)}
        environ |= command.environ
        is_called = not statement.is_sure and _FUNCTION.search(self.launch.text) is not None
        complete = replace(
            command,
            environ=environ,
            unexported=frozenset(self.values).difference(environ),
            waits=command.waits and statement.is_sure and statement.end not in ("&", "|"),
            folders=self.folders,
            makes_files=self.makes_files,
            set_by=self.set_by or "its caller" * is_called,
        )
        self.launch.commands.append(complete)


def command_of(words: Sequence[Word]) -> Command | None:
    """The command of ms-swift that these words start, with its launcher's variables; None without one.

    Recognizes ``swift rlhf``, ``python -m swift.cli.rlhf``, ``.../cli/rlhf.py`` and ``swift.cli.main rlhf``,
    after programs that start the rest of the line on this machine.
    """
    for index, word in enumerate(words):
        match = _PROGRAM.fullmatch(written(word)[:1000])
        if match is None:
            continue
        program, of_megatron, module = match.groups()
        is_main = module in (None, "main")  # it starts torchrun, as `swift` does
        rest = tuple(words[index + 1 :])
        if is_main and not (rest and _SUBCOMMAND.fullmatch(written(rest[0]))):
            continue
        before = " ".join(map(written, words[:index]))
        if not _STARTS.match(before) or (program and _OF_A_FILE.fullmatch(before)):
            return None
        return Command(
            ("megatron" if of_megatron else program or "swift", *(rest if is_main else (str(module), *rest))),
            _variables(before),
            waits="srun" not in before,
            is_single=not is_main and not _LAUNCHER.search(before),
        )
    return None


# Options of launchers -> the equivalent variable of `swift`; WORLD_SIZE for the number of all processes.
_SAME_AS = {
    **dict.fromkeys(("nproc_per_node", "num_gpus"), "NPROC_PER_NODE"),
    **dict.fromkeys(("nnodes", "nodes", "num_nodes", "num_machines"), "NNODES"),
    "num_processes": "WORLD_SIZE",
}


def _variables(before: str) -> dict[str, Word]:
    """Variables that the words before a command set or unset: ``env -u A B=1``, torchrun's ranks."""
    environ = dict.fromkeys(re.findall(r"(?<!\S)(?:-u ?|--unset[= ])([A-Z_]+)", before), "$")
    environ |= dict(re.findall(r"(?<!\S)(?:-x )?([A-Z_]+)=(\S*)", before))
    if launcher := _LAUNCHER.search(before):
        options = re.findall(r"--?([a-z]+(?:[-_][a-z]+)*)[= ]+(?!-)(\S+)", before)
        said = {_SAME_AS.get(name.replace("-", "_"), ""): value for name, value in options}
        # torchrun's defaults are 1; the others read a file or take all GPUs.
        is_open = "$" in before
        nodes = said.get("NNODES", "$" if is_open else "1")
        ranks = said.get("NPROC_PER_NODE", "1" if launcher[1] and not is_open else "$")
        world = said.get("WORLD_SIZE", "")
        if world.isdecimal() and nodes.isdecimal():
            ranks = str(max(1, int(world) // max(1, int(nodes))))
        environ |= {"NPROC_PER_NODE": ranks, "NNODES": nodes}
        if launcher[0] == "accelerate":  # its own file says how it shards
            environ["ACCELERATE_DEEPSPEED_ZERO_STAGE"] = "$"
    return {name: Unknown(value) if re.search("[$`]", value) else value for name, value in environ.items()}
