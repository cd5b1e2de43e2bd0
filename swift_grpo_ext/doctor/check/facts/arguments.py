"""Parses the words after ``swift rlhf`` as ms-swift's own parser does, without importing it."""

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.unknown import Unknown, Word, written
from swift_grpo_ext.errors import NEAR, nearest
from swift_grpo_ext.findings import Problem

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
_DASHES = "-–—―−"  # the first, and those of word processors
_QUOTES = "“”‘’"
_LEFT_OUT = ("...", "…")  # of a command in a document
# Usual values of options that take a fraction.
_USUAL = {
    "--learning_rate": "1e-5",
    "--lr": "1e-5",
    "--vit_lr": "1e-6",
    "--aligner_lr": "1e-5",
    "--beta": "0.04",
}


Group = tuple[str, list[Word]]  # a flag and the words behind it


@dataclass(frozen=True)
class Arguments:
    """Values by name as ms-swift's parser sees them, defaults included.

    An attribute is an argument's value: None for one that this release does not have, `Unknown` for one that
    the launch takes from somewhere else.
    """

    values: dict[str, Any]  # every argument
    given: frozenset[str] = frozenset()  # names on the command line
    refusals: tuple[Problem, ...] = ()  # what the parser does not take
    open: tuple[str, ...] = ()  # words that may hold any options
    # (name, values in order) of what is given more than once
    repeated: tuple[tuple[str, tuple[str, ...]], ...] = ()
    kind: str = "RLHFArguments"  # ms-swift's argument class

    def __getattr__(self, name: str) -> Any:
        """An argument's value.

        Raises:
            AttributeError: of a name that begins with two underscores.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name)

    def get(self, name: str) -> Any:
        """An argument's value, by its name as text."""
        if self.open and name not in self.given:
            return Unknown(f"options in {' '.join(self.open)}")
        return self.values.get(name)

    def is_known(self, name: str) -> bool:
        """Whether its value is known."""
        return not isinstance(self.get(name), Unknown)

    @property
    def as_written(self) -> "Arguments":
        """As if words that may hold options held none: what is not written has its default.

        But for plugins, where none is written: they may register any name.
        """
        plugins = ("external_plugins", "custom_register_path")
        hidden = {} if self.given.intersection(plugins) else {name: self.get(name) for name in plugins}
        return replace(self, values=self.values | hidden, open=())


def parse(words: Sequence[Word], kind: str = "RLHFArguments") -> Arguments:
    """Parse the words after ``swift rlhf``; a value that the parser refuses is left out and reported."""
    parser = host_table.parser(kind)
    words = [_unless_left_out(word) for word in words]
    refusals = list(_quoted(words))
    groups = list(_groups(words))
    plain, unknown, rest = _without_unknown(groups, parser)
    given = {_name(flag) for flag, _ in groups if flag}
    strange: list[str] = []
    values = dict(host_table.defaults(kind))
    for flag, behind in plain:
        try:
            namespace, left = parser.parse_known_args([*([flag] * bool(flag)), *behind])
            values |= vars(namespace)
            given |= set(vars(namespace))
            strange += left
        except host_table.Refused as refused:
            name = f"--{_name(flag)}"
            refusals.append(_refusal(str(refused), name, _fix(str(refused), name)))
    if not values.get("ignore_args_error"):
        refusals += _strange(strange, parser)
    if kind == "RLHFArguments":
        values = _completed(values)
        if "tuner_type" in unknown and "learning_rate" not in given:
            unknown["learning_rate"] = unknown["tuner_type"]
    values |= {name: Unknown(f"--{name} ({text})") for name, text in unknown.items()}
    return Arguments(values, frozenset(given), tuple(refusals), tuple(rest), tuple(_repeated(groups)), kind)


def _refusal(message: str, where: str, fix: str) -> Problem:
    return Problem(f"ms-swift refuses it: {message}", where, fix)


def _unless_left_out(word: Word) -> Word:
    return Unknown(word, many=True) if isinstance(word, str) and word in _LEFT_OUT else word


def _quoted(words: Iterable[Word]) -> Iterator[Problem]:
    """Quotes of a word processor, which the shell takes for letters."""
    for word in words:
        if isinstance(word, str) and word and (word[0] in _QUOTES or word[-1] in _QUOTES):
            yield _refusal("typographic quotes are part of the value", word, f"'{word.strip(_QUOTES)}'")


def _name(flag: str) -> str:
    return flag[2:].split("=")[0].replace("-", "_")


def _completed(values: dict[str, object]) -> dict[str, object]:
    """Fill in the defaults that the host sets later, for GRPO."""
    full = values["tuner_type"] == "full"
    later = {
        "beta": 0.04,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-5 if full else 1e-4,
        "truncation_strategy": "left",
    }
    return {**values, **{name: value for name, value in later.items() if values.get(name) is None}}


def _groups(words: Sequence[Word]) -> Iterator[Group]:
    """Each flag with the words behind it; words before the first flag come with an empty flag."""
    flag = ""
    values: list[Word] = []
    for word in words:
        text = written(word)
        name, _, value = text.partition("=")
        if not text.startswith("--") or len(text) < 3:
            values.append(word)
            continue
        if flag or values:
            yield flag, values
        flag = text
        values = []
        if isinstance(word, Unknown):  # --lr=$LR; a name that is not known may be any number of options
            flag = "" if "$" in name else name
            values = [Unknown(value if flag else text, many=not flag)]
    if flag or values:
        yield flag, values


def _without_unknown(
    groups: list[Group], parser: argparse.ArgumentParser
) -> tuple[list[tuple[str, list[str]]], dict[str, str], list[str]]:
    """The options that can be parsed, the names whose value is not known, and words that may be options."""
    kept: list[tuple[str, list[str]]] = []
    unknown: dict[str, str] = {}
    rest: list[str] = []
    for flag, values in groups:
        action = parser._option_string_actions.get(flag.split("=")[0])
        takes = 0 if not flag or "=" in flag else 1
        several = action is not None and action.nargs in ("+", "*")
        # An unquoted variable right behind an option is its value; one further on may be more options.
        behind = [word for word in values[takes:] if isinstance(word, Unknown) and (word.many or not flag)]
        rest += [word.name for word in behind]
        own = [word for word in (values if several else values[:takes]) if isinstance(word, Unknown)]
        plain = [word for word in values if isinstance(word, str)]
        if flag and own and not (several and behind and isinstance(values[0], str)):
            unknown[action.dest if action else _name(flag)] = " ".join(word.name for word in own)
        else:
            kept.append((flag, plain))
    return kept, unknown, rest


def _fix(message: str, name: str) -> str:
    """What a refusal of the parser asks for."""
    if match := re.search(r"(?:option|choice): '?(.*?)'? (?:could match|\(choose from) ([^)]*)", message):
        names = re.findall(r"[^\s',]+", match[2])
        near = nearest(match[1], names)
        return near if near.startswith("--") else f"{name} {near or names[0]}"
    values = {"expected": "VALUE", "invalid int": "1", "invalid float": _USUAL.get(name, "1.0")}
    return next((f"{name} {value}" for sign, value in values.items() if sign in message), f"leave {name} out")


def _strange(words: Sequence[str], parser: argparse.ArgumentParser) -> Iterator[Problem]:
    """What the parser left over: unknown options, and words that belong to none."""
    behind_unknown = False
    for word in filter(None, words):
        if word[0] in _DASHES and len(word) > 1:
            behind_unknown = True
            yield _unknown(word, parser)
        elif not behind_unknown:
            fix = "quote values that hold blanks, or put the option before it"
            yield _refusal(f"ValueError: remaining_argv: [{word!r}]", word, fix)


def _unknown(word: str, parser: argparse.ArgumentParser) -> Problem:
    name = word.lstrip(_DASHES).split("=")[0].replace("-", "_")
    options = [option[2:] for option in parser._option_string_actions if "_" in option or len(option) > 3]
    if name in RENAMED:
        fix = f"--{RENAMED[name]}" if RENAMED[name] else "it is gone, leave it out"
    elif name == "config":
        fix = "the file is the first word, without a flag: swift rlhf run.yaml"
    else:
        close = nearest(name, options, NEAR)
        fix = f"--{close}" if close else "leave it out"
    return _refusal(f"ValueError: remaining_argv: [{word!r}, ...]", word, fix)


def _repeated(groups: list[Group]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Options that are given more than once, with different values that are all known."""
    values: dict[str, list[str]] = {}
    for flag, behind in groups:
        text = flag.partition("=")[2] or " ".join(map(written, behind))
        is_known = all(isinstance(word, str) for word in behind)
        values.setdefault(_name(flag), []).append(text if is_known else "")
    for name, texts in values.items():
        if name and all(texts) and len(set(texts)) > 1:
            yield name, tuple(texts)
