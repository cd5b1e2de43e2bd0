"""Parses the words after ``swift rlhf`` with the host's own parser, without its checks that load a model."""

from __future__ import annotations

import argparse
import difflib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from swift_grpo_ext.errors import SwiftGrpoExtError

# Flags of older releases and what became of them in 4.x; empty: nothing takes their place.
RENAMED = {
    "train_type": "tuner_type",
    "sft_type": "tuner_type",
    "tensor_parallel_size": "vllm_tensor_parallel_size",
    "vllm_device": "",
    "num_infer_workers": "",
    "gc_collect_after_offload": "",
    "lazy_tokenizer": "lazy_tokenize",
    "model_id_or_path": "model",
    "dtype": "torch_dtype",
}
CONFIG_SUFFIXES = (".yaml", ".yml", ".json")
_UNRESOLVED = re.compile(r"\$[\w{(@*#?]|`")
_INVISIBLE = re.compile("[\u00a0\u200b\u200c\u200d\u2060\u3000\ufeff]")
_DASHES, _QUOTES = "–—―−", "“”‘’"
_MENDS = (
    ("ambiguous option", "write the whole name"),
    ("expected", "give it a value"),
    ("invalid int", "give a whole number"),
    ("invalid float", "give a number"),
    ("invalid choice", "give one of its values"),
)


@dataclass(frozen=True)
class Refusal:
    """An argument that the host's parser refuses: its message, the argument, and the fix."""

    message: str
    where: str
    fix: str


@dataclass(frozen=True)
class Arguments:
    """Values by name as the host's parser sees them, defaults included.

    Attributes:
        values: Every argument.
        given: Names on the command line.
        refusals: What the parser does not take.
        unknown: Names whose value the script takes from somewhere else.
        repeated: (name, values in order) of what is given more than once.
    """

    values: dict[str, Any]
    given: frozenset[str]
    refusals: tuple[Refusal, ...] = ()
    unknown: frozenset[str] = frozenset()
    repeated: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __getattr__(self, name: str) -> Any:
        """An argument's value; None for one that this release does not have."""
        return self.__dict__["values"].get(name)


class _Refused(Exception):
    pass


@lru_cache(maxsize=2)
def _host_parser(kind: str) -> argparse.ArgumentParser:
    from swift import arguments
    from swift.utils.utils import _patch_get_type_hints
    from transformers import HfArgumentParser

    with _patch_get_type_hints():
        parser: argparse.ArgumentParser = HfArgumentParser([getattr(arguments, kind)])

    def error(message: str) -> None:
        raise _Refused(message)

    parser.error = error  # type: ignore[method-assign,assignment]
    return parser


def parse(words: Sequence[str], kind: str = "RLHFArguments") -> Arguments:
    """Parse the words after ``swift rlhf``; a value that the parser refuses is left out and reported.

    Args:
        words: The words.
        kind: The host's argument class: ``RolloutArguments`` for ``swift rollout``.
    """
    parser, refusals = _host_parser(kind), [*_invisible(words), *_typographic(words)]
    words = [
        part for word in words for part in (_INVISIBLE.sub(" ", word).split() if _hides(word) else [word])
    ]
    words = [word for word in words if word[:1] not in _DASHES or len(word) < 2]
    left, unknown = _without_unresolved(words, parser)
    for _ in range(len(left) + 1):
        try:
            namespace, strange = parser.parse_known_args(left)
            break
        except _Refused as refused:
            name, left = _without(str(refused), left)
            fix = next((fix for sign, fix in _MENDS if sign in str(refused)), "fix or drop it")
            refusals.append(Refusal(str(refused), name, fix))
    else:
        namespace, strange = parser.parse_known_args([])
    refusals += _strange(strange, parser)
    groups = list(_groups(words))
    given = frozenset(flag[2:].split("=")[0].replace("-", "_") for flag, _ in groups if flag)
    values = _completed(vars(namespace)) if kind == "RLHFArguments" else vars(namespace)
    return Arguments(values, given, tuple(refusals), unknown, tuple(_repeated(groups)))


def config_words(path: Path) -> tuple[list[str], dict[str, str]]:
    """Words and variables of a configuration file, as the host makes them of ``swift rlhf run.yaml``.

    Raises:
        SwiftGrpoExtError: It is not there, or no table of arguments.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        first = str(error).splitlines()[0]
        raise SwiftGrpoExtError(f"cannot be read: {first}", where=str(path), fix="check the file") from None
    if not isinstance(table, dict):
        raise SwiftGrpoExtError("no table of arguments", where=str(path), fix="one `name: value` a line")
    environ = {str(name): str(value) for name, value in (table.pop("ENV", None) or {}).items()}
    words: list[str] = []
    for name, value in table.items():
        many = value if isinstance(value, list) else [value]
        words += [f"--{name}", *(json.dumps(v) if isinstance(v, dict) else str(v) for v in many)]
    return words, environ


def _completed(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in the defaults that the host sets later, for GRPO."""
    full = values["tuner_type"] == "full"
    later = {
        "beta": 0.04,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-5 if full else 1e-4,
        "truncation_strategy": "left",
    }
    return {**values, **{name: value for name, value in later.items() if values.get(name) is None}}


def _groups(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each flag with the words behind it; words before the first flag come with an empty flag."""
    flag, values = "", list[str]()
    for word in words:
        if word.startswith("--") and len(word) > 2:
            if flag or values:
                yield flag, values
            flag, values = word, []
        else:
            values.append(word)
    if flag or values:
        yield flag, values


def _without_unresolved(
    words: Sequence[str], parser: argparse.ArgumentParser
) -> tuple[list[str], frozenset[str]]:
    """The words that can be parsed, and the names whose value is a variable that nobody sets here."""
    kept: list[str] = []
    unknown = set()
    for flag, values in _groups(words):
        name, _, value = flag.partition("=")
        unresolved = [one for one in (*values, value) if _UNRESOLVED.search(one)]
        if not unresolved:
            kept += [flag, *values] if flag else values
            continue
        unknown.add(name[2:].replace("-", "_"))
        action = parser._option_string_actions.get(name)
        if action is not None and action.type in (str, None) and not action.choices:
            kept += [flag, *values[:1]] if action.nargs is None else [flag, *values]
        elif flag and (rest := [one for one in values if one not in unresolved]):
            kept += [flag, *rest]
    return kept, frozenset(unknown - {""})


def _without(message: str, words: list[str]) -> tuple[str, list[str]]:
    """The argument that a message names, and the words without it and its values."""
    for named in re.findall(r"--[\w-]+", message):
        for start, word in enumerate(words):
            spelled = word.split("=")[0].replace("-", "_")
            if word.startswith("--") and named.replace("-", "_").startswith(spelled) and len(word) > 2:
                end = start + 1
                while end < len(words) and not words[end].startswith("--"):
                    end += 1
                return named, words[:start] + words[end:]
    return "", []


def _hides(word: str) -> bool:
    """An option that a copied page has glued to its value, or to nothing, with a blank that is none."""
    return bool(_INVISIBLE.search(word)) and _INVISIBLE.sub("", word).startswith("-")


def _invisible(words: Sequence[str]) -> Iterator[Refusal]:
    """Blanks of web pages and word processors, which the shell takes for letters."""
    for word in words:
        if _hides(word):
            sign = f"U+{ord(_INVISIBLE.search(word)[0]):04X}"  # type: ignore[index]
            fix = "type the blanks of this line again"
            yield Refusal(f"the invisible character {sign} is part of the word", word, fix)


def _typographic(words: Sequence[str]) -> Iterator[Refusal]:
    """Dashes and quotes of a word processor."""
    for word in words:
        if word[:1] in _DASHES and len(word) > 1:
            yield Refusal("a long dash begins no option", word, f"--{word.lstrip(_DASHES + '-')}")
        elif word and (word[0] in _QUOTES or word[-1] in _QUOTES):
            yield Refusal("typographic quotes are part of the value", word, "use straight quotes")


def _strange(words: Sequence[str], parser: argparse.ArgumentParser) -> Iterator[Refusal]:
    """What the parser left over: unknown options, and words that belong to none."""
    behind_unknown = False
    for word in words:
        if word.startswith("-") and len(word) > 1:
            behind_unknown = True
            yield _unknown(word, parser)
        elif not behind_unknown and not _UNRESOLVED.search(word):
            fix = "quote values that hold blanks, or put the option before it"
            yield Refusal(f"ValueError: remaining_argv: [{word!r}]", word, fix)


def _unknown(word: str, parser: argparse.ArgumentParser) -> Refusal:
    name = word.lstrip("-").split("=")[0].replace("-", "_")
    known = [option[2:] for option in parser._option_string_actions if "_" in option or len(option) > 3]
    if name in RENAMED:
        fix = f"--{RENAMED[name]} took its place" if RENAMED[name] else "it is gone, leave it out"
    elif name == "config":
        fix = "the file is the first word, without a flag: swift rlhf run.yaml"
    else:
        nearest = difflib.get_close_matches(name, known, n=1)
        fix = f"did you mean --{nearest[0]}?" if nearest else "leave it out"
    return Refusal(f"ValueError: remaining_argv: [{word!r}, ...]", word, fix)


def _repeated(groups: list[tuple[str, list[str]]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    values: dict[str, list[str]] = {}
    for flag, behind in groups:
        name, _, value = flag[2:].partition("=")
        values.setdefault(name.replace("-", "_"), []).append(value or " ".join(behind))
    for name, seen in values.items():
        if name and len(set(seen)) > 1:
            yield name, tuple(seen)
