"""Reads a plain launch script: assignments, exports, arrays, ``${A:-b}``, ms-swift. Nothing of it is run.

What a branch or a substitution sets is unknown, and behind a loop, a function or a sourced file so is every
variable.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from swift_grpo_ext.doctor.check.unknown import PLUGIN, Unknown, Word, written
from swift_grpo_ext.errors import SwiftGrpoExtError

# Repetitions are possessive (`*+`): they never go back, so that no text takes more than a moment.
_BRACKETS = r"\((?:[^()]|\((?:[^()]|\([^()]*+\))*+\))*+\)"
_EXPANDED = rf"\$(?:{_BRACKETS}|\{{(?:[^{{}}]|\{{[^{{}}]*+\}})*+\}}|\w+|[@*#?$!-])|`[^`]*+`"
_DOUBLE = rf'"(?:[^"\\$`]|\\.|{_EXPANDED}|\$(?![({{]))*+"'
_PART = rf"'([^']*+)'|\\(.)|{_DOUBLE}|{_EXPANDED}|<[\w-]+>"  # the last stands in documentation
_WORD = rf"(?:{_PART}|[<>]{_BRACKETS}|\$(?![({{])|(?<=[^\s;&|()])#|[^\s;&|<>()'\"`\\$#])++"
_BLANK = r"[^\S\n]+|\\\n|\\[ \t]+(?=[#\n])|(?<![^\s;&|()])#[^\n]*"  # also joined lines and comments
_WRITTEN = rf"\d*&?>[>|]?(?![&(]|[ \t]*[^\s<>]{0, 99}(?i:log|out|err|null))[ \t]*{_WORD}"
_HERE = r"<<-?[ \t]*['\"]?(?P<name>[A-Za-z_]\w*)[^\n]*\n(?:[^\n]*\n)*?[ \t]*(?P=name)[ \t]*(?=\n)"
_FILE = rf"\d*(?:<<<|&?>[>|&]?|<(?!<|[\w-]+>)&?)(?!\()[ \t]*{_WORD}"
_ARRAY = rf"[A-Za-z_]\w*\+?=\((?:[ \t]|\\?\n|(?<=[\s(])#[^\n]*|{_WORD})*+\)"
_TOKENS = re.compile(
    rf"{_BLANK}|(?P<written>{_WRITTEN}|{_HERE})|{_FILE}|(?P<word>{_ARRAY}|{_WORD})|(?P<end>\n|;;?|&&|\|\|?&?|&|[()])|(?P<odd>.)",
    re.DOTALL,
)
_PARTS = re.compile(_PART, re.DOTALL)
_IN_QUOTES = re.compile(rf"{_EXPANDED}|\\([\"$`\\])", re.DOTALL)
_VALUE = re.compile(r"\$\{?([A-Za-z_]\w*)(?::-(.*?)|:?\?.*?)?\}?", re.DOTALL)
_ITEMS = re.compile(r'"?\$\{(\w+)\[[@*]\]\}"?')
_ASSIGNS = re.compile(r"[A-Za-z_]\w*\+?=")
_GLOB = re.compile(r"[*?]|\[[^\[\]]+\]|\{[^{}]*\}")
# `$(dirname "$0")` and `$(cd "$(dirname "$0")" && pwd)`, not another command that is given the folder.
_FOLDER = re.compile(
    r"""[$(`\s"']*+(?:cd\s++(?:--\s++)?)?[$(`\s"']*+dirname\s++(?:--\s++)?["']?\$\{?(?:0|BASH_SOURCE)(?!.*\.\.)""",
    re.DOTALL,
)
_PLUGIN = re.compile(r"[$(` ]*swift-grpo-ext\W+path\b[^\n]*")
# What opens a block, closes it, and stands in between, before a command.
_KEYWORD = re.compile("(if|while|until|case|[{])|(fi|done|esac|})|then|else|elif|do|!|time")
# What sets variables in other ways; and files that are sourced for the shell, not for the ranks.
_SETS = re.compile(
    r"source|[.]|eval|read|mapfile|readarray|declare|typeset|local|readonly|let|unset|getopts|for|select|function|\w+\[.*"
)
_OF_THE_SHELL = re.compile(
    r"(activate|conda\.sh|\.\w*rc|profile|set_env\.sh)$|\b(conda|mamba|micromamba|pyenv)\b"
)
# Commands that write no file that a run reads.
_WRITES_NOTHING = re.compile(
    r"[:\[(.].*|cat|cd|conda|date|echo|env|eval|exit|export|hostname|kill|ls|mkdir|module|nvidia-smi|pip|pkill|printf|ps"
    "|pwd|read|rm|set|shopt|sleep|source|test|touch|trap|true|ulimit|unset|wait|wandb|which"
)
_MOST_LETTERS, _MOST_OF_A_WORD = 2**16, 1000  # of a script or a value; of a word that may be a program
# A command of ms-swift, one word a line, behind variables and programs that start it on this machine.
_COMMAND = re.compile(
    r"""
    (?P<before>(?:
        (?:[A-Za-z_]\w*=|\$|[\d,]+\n|(?:\S*/)?(?:env|nohup|time|exec|eval|command|sudo|numactl|taskset|nice|ionice|timeout
            |stdbuf|setsid|python[\d.]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|conda|mamba|micromamba|uv|poetry
            |ray|srun)\n)
        (?:(?!docker|kubectl|singularity|apptainer|-u\w*\n\w+|--unset)[^\n]*\n)*?
    )?)
    (?:
        (?P<program>(?:[^\n]*/)?(?:swift|megatron)\n)
        |[^\n]*swift[./]cli[./]main(?:\.py)?\n
        |(?P<module>[^\n]*(?:swift[./]cli[./]|cli/(?=[^\n]*\.py\n))(?:_megatron[./])?)
    )
    (?P<subcommand>pt|sft|infer|merge[-_]lora|web[-_]ui|deploy|rollout|rlhf|grpo|sample|export|eval|app)(?:\.py)?\n
    """,
    re.VERBOSE,
)
_LAUNCHER = re.compile(
    r"\b(?:(torchrun|torch\.distributed\.(?:run|launch))|accelerate|deepspeed|mpirun|mpiexec|srun(?=.*\n\S*python))\b",
    re.DOTALL,
)


@dataclass(frozen=True, eq=False)
class Command:
    """One ``swift`` or ``megatron`` command with its environment."""

    program: str = ""  # `swift` or `megatron`; empty if only its arguments are known
    subcommand: str = "rlhf"
    words: tuple[Word, ...] = ()  # its arguments
    environ: Mapping[str, Any] = field(default_factory=dict)  # variables that it sees: text, or Unknown
    unexported: frozenset[str] = frozenset()  # names that the script sets but the command does not see
    # Folders that relative paths may refer to: where it is started, and for a script its own folder; empty if
    # unknown.
    folders: tuple[Path, ...] = (Path(),)
    makes_files: bool = False  # a program that ran before may have written any file
    set_by: str = ""  # a source that may set any variable; empty: variables missing in `environ` are not set
    is_single: bool = False  # started by python, so one process regardless of the variables


@dataclass
class Launch:
    """Facts read from a script; empty for a command without a script."""

    commands: list[Command] = field(default_factory=list)  # the `swift` commands so far
    cuts: list[int] = field(default_factory=list)  # lines with options cut off from the command above
    text: str = ""  # the script itself


def read_script(
    text: str, environ: Mapping[str, str] | None = None, folders: tuple[Path, ...] = (Path(),)
) -> Launch:
    """Read a shell script that is started with these variables, in one of these folders.

    A command that a line cuts short is read as intended, so that the other checks still see all of it.

    Raises:
        SwiftGrpoExtError: it is not the text of a plain shell script, or longer than people write.
    """
    if re.search("[\0\1]", text) or len(text) > _MOST_LETTERS:
        raise SwiftGrpoExtError("not the text of a launch script")
    reader = _Reader(Launch(text=text), folders, dict(environ or {}), set(environ or ()))
    words: list[str] = []  # of the statement so far
    line = first = 1
    for token in _TOKENS.finditer(text.replace("\r\n", "\n") + "\n\n"):
        first = first if words else line
        if token["odd"]:
            raise SwiftGrpoExtError(
                "not plain bash: a quote or a bracket is not closed", where=f"line {first}"
            )
        if token["word"]:
            words.append(token["word"].replace("\\\n", ""))
        elif token["end"]:
            if words[:1] == ["exit"] and reader.is_sure:
                break
            reader.read(words, token["end"], first)
            words = []
        reader.makes_files |= token["written"] is not None
        line += token[0].count("\n")
    return reader.launch


@dataclass
class _Reader:
    """State of reading a script, at one of its statements.

    In the text of a value, \\0 marks what is not known, and \\1 what may also be any number of words.
    """

    launch: Launch
    folders: tuple[Path, ...]  # as in `Command`
    values: dict[str, str]  # of variables
    exported: set[str]
    arrays: dict[str, list[str]] = field(default_factory=dict)  # their words
    set_by: str = ""  # a source that may set any variable
    makes_files: bool = False  # a program that ran may have written any file
    is_swift: bool = False  # the last command was a `swift` command
    blocks: int = 0  # open ones
    behind: str = ""  # what ended the last statement

    @property
    def is_sure(self) -> bool:
        """True if the statement is always executed, exactly once."""
        return not self.blocks and self.behind not in ("&&", "||")

    def read(self, words: list[str], end: str, line: int) -> None:
        """Read the words of a statement, and what ends it."""
        while words and (keyword := _KEYWORD.fullmatch(words[0])):
            self.blocks += bool(keyword[1]) - bool(keyword[2])
            del words[0]
        if end == "(":  # of a function, arithmetic or a subshell: its end is not looked for
            self.blocks += _MOST_LETTERS
            self.lose("its caller")
        if words:
            self.follow(words, line)
        if words or end != "\n":
            self.behind = end

    def lose(self, set_by: str) -> None:
        """Take every variable for unknown from here on."""
        self.values, self.arrays, self.set_by = {}, {}, set_by

    def follow(self, words: list[str], line: int) -> None:
        """Follow a simple command, an assignment or both."""
        if words[0] == "export" or all(map(_ASSIGNS.match, words)):
            exports = words[0] == "export"
            for word in words[exports:]:
                self.declare(word, exports or "set -a" in self.launch.text)
            return
        head = next(word for word in words if not _ASSIGNS.match(word))
        texts = [_word(text) for word in words for text in self.expanded(word)]
        text = " ".join(map(written, texts))
        command = command_of(texts)
        if command:
            self.start(command)
        elif self.is_swift and self.is_sure and re.match("[-–—]+[A-Za-z]", text):  # options cut off
            last = self.launch.commands[-1]
            self.launch.commands[-1] = replace(last, words=(*last.words, *texts))
            self.launch.cuts.append(line)
            return
        elif _SETS.fullmatch(head) and not _OF_THE_SHELL.search(text):
            self.lose(head)
        elif head in ("cd", "pushd", "popd") and text != "cd .":
            self.folders = ()
        self.is_swift = command is not None
        self.makes_files |= not command and not _WRITES_NOTHING.fullmatch(head)

    def declare(self, word: str, exports: bool) -> None:
        """Assign ``NAME=value``, ``NAME+=value`` or an array, or export a name."""
        name, assigns, source = word.partition("=")
        name, adds = name.rstrip("+"), name.endswith("+")
        self.exported |= {name} if exports else set()
        if re.match(r"-|.*[$`]", name):  # an option, or what a command prints
            self.lose("export")
        elif not self.is_sure:
            self.values[name], self.arrays[name] = f"\0${name}", [f"\1${name}"]
        elif source.startswith("("):
            items = [item["word"] for item in _TOKENS.finditer(source[1:-1]) if item["word"]]
            added = [text for item in items for text in self.expanded(item)]
            before = self.arrays.get(name, [f"\1${name}"]) if adds else []
            self.arrays[name] = [*before, *added][:_MOST_LETTERS]
        elif assigns:
            self.makes_files |= re.search(r"\b(download|clone|wget|curl)\b", source) is not None
            self.values[name] = self.value(f"${{{name}:-}}{source}" if adds else source)
        else:  # exported, wherever it was set
            self.values.setdefault(name, f"\0${name}")

    def expanded(self, source: str) -> list[str]:
        """The words that a word of the script becomes in a command."""
        array = _ITEMS.fullmatch(source)
        if array and array[1] in self.arrays:
            return self.arrays[array[1]]
        if _GLOB.search(_PARTS.sub("", source)):
            return [f"\0{source}"]
        text = self.value(source)
        if re.fullmatch(_EXPANDED, source, re.DOTALL):  # the shell splits it
            return [f"\1{text}"] if "\0" in text else text.split()
        return [text]

    def value(self, source: str, parts: re.Pattern[str] = _PARTS) -> str:
        """The value of a word without word splitting, as in an assignment."""
        text = parts.sub(self.part, source)
        return text if len(text) <= _MOST_LETTERS else f"\0{text[:_MOST_LETTERS]}"

    def part(self, match: re.Match[str]) -> str:
        """The value of a quoted or expanded part of a word."""
        text = match[0]
        if match.lastindex:  # between single quotes, or behind a backslash
            return match[match.lastindex]
        if text[0] == '"':
            return self.value(text[1:-1], _IN_QUOTES)
        if _FOLDER.match(text):
            return "."
        if _PLUGIN.fullmatch(text):
            return PLUGIN
        known = _VALUE.fullmatch(text)
        name, default = known.groups() if known else ("", None)
        value = self.values.get(name)
        if value or (value is not None and default is None):
            return value
        if default is None or self.set_by:
            return f"\1{text}" if "@" in text else f"\0{text}"
        return self.value(default)

    def start(self, command: Command) -> None:
        """Add a command of ms-swift, with the variables that it sees."""
        environ: dict[str, Any] = {
            name: _word(value) for name, value in self.values.items() if name in self.exported
        }
        environ |= command.environ
        self.launch.commands.append(
            replace(
                command,
                environ=environ,
                unexported=frozenset(self.values).difference(environ),
                folders=self.folders,
                makes_files=self.makes_files,
                set_by=self.set_by,
            )
        )
        self.makes_files |= command.subcommand not in ("rollout", "deploy")


def _word(text: str) -> Word:
    plain = re.sub("[\0\1]", "", text)
    return Unknown(plain, many="\1" in text) if plain != text else text


def command_of(words: Sequence[Word]) -> Command | None:
    """The command of ms-swift that these words start, with its launcher's variables; None without one.

    Recognizes ``swift rlhf``, ``python -m swift.cli.rlhf``, ``.../cli/rlhf.py`` and ``swift.cli.main rlhf``,
    after programs that start the rest of the line on this machine.
    """
    lines = (written(word)[:_MOST_OF_A_WORD].replace("\n", " ") for word in words)
    match = _COMMAND.match("".join(f"{line}\n" for line in lines))
    if match is None:
        return None
    before, program, module, subcommand = match.groups("")
    if program and re.search(r"\b(torchrun|deepspeed)\b|-m$", before):  # it looks for a file of that name
        return None
    return Command(
        "megatron" if re.search(r"megatron\W*$", program or module) else "swift",
        subcommand,
        tuple(words[match[0].count("\n") :]),
        _variables(before),
        is_single=bool(module) and not _LAUNCHER.search(before),
    )


def _variables(before: str) -> dict[str, Word]:
    """Variables that the words before a command set: ``A=1``, ``env A=1``, and the ranks of a launcher."""
    environ = dict(re.findall(r"^([A-Za-z_]\w*)=(.*)$", before, re.MULTILINE))
    if launcher := _LAUNCHER.search(before):
        # torchrun's defaults are 1; the others read a file, or take all GPUs.
        default = "1" if launcher[1] and "$" not in before else "$"
        said = dict(re.findall(r"--(nproc|nnodes)[a-z_-]*[=\s]+(\S+)", before))
        environ |= {"NPROC_PER_NODE": said.get("nproc", default), "NNODES": said.get("nnodes", default)}
        if launcher[0] == "accelerate":  # its own file says how it shards
            environ["ACCELERATE_DEEPSPEED_ZERO_STAGE"] = "$"
    return {name: Unknown(value) if re.search("[$`]", value) else value for name, value in environ.items()}
