"""Parses the words after ``swift rlhf`` as ms-swift's own parser does, without importing it."""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

from swift_grpo_ext.doctor.check import host_table
from swift_grpo_ext.doctor.check.words import is_known, is_open, opened, shown
from swift_grpo_ext.errors import NEAR, nearest
from swift_grpo_ext.findings import NotKnownError as NotKnown
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
_INVISIBLE = re.compile("[\u00a0\u200b\u200c\u200d\u2060\u3000\ufeff]")
_DASHES, _QUOTES = "–—―−", "“”‘’"
_LEFT_OUT = ("...", "…")  # of a command in a document
_MENDS = (("expected", "{} VALUE"), ("invalid int", "{} 1"), ("invalid float", "{} 1.0"))
_RATES = {"--learning_rate": "1e-5", "--lr": "1e-5", "--vit_lr": "1e-6", "--aligner_lr": "1e-5"}
_USUAL = {**_RATES, "--beta": "0.04"}


Group = tuple[str, list[str]]  # a flag and the words behind it


@dataclass(frozen=True)
class Arguments:
    """Values by name as ms-swift's parser sees them, defaults included.

    An attribute is an argument's value, None for one that this release does not have; asking for one that
    is not known raises `NotKnown`.
    """

    values: dict[str, Any]  # every argument
    given: frozenset[str] = frozenset()  # names on the command line
    refusals: tuple[Problem, ...] = ()  # what the parser does not take
    # names whose value the script takes from somewhere else, with what stands there
    unknown: Mapping[str, str] = field(default_factory=dict)
    open: tuple[str, ...] = ()  # words that may hold any options
    # (name, values in order) of what is given more than once
    repeated: tuple[tuple[str, tuple[str, ...]], ...] = ()
    kind: str = "RLHFArguments"  # ms-swift's argument class

    def __getattr__(self, name: str) -> Any:
        """An argument's value."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self.unknown:
            raise NotKnown(f"--{name} ({self.unknown[name]})")
        if self.open and name not in self.given:
            raise NotKnown(f"options in {' '.join(self.open)}")
        return self.values.get(name)

    get = __getattr__

    def known(self, name: str) -> bool:
        """Whether it may be asked for."""
        return name not in self.unknown and (not self.open or name in self.given)


def parse(words: Sequence[str], kind: str = "RLHFArguments") -> Arguments:
    """Parse the words after ``swift rlhf``; a value that the parser refuses is left out and reported."""
    parser = host_table.parser(kind)
    refusals = [*chain.from_iterable(map(_invisible, words)), *chain.from_iterable(map(_typographic, words))]
    parts = [_INVISIBLE.sub(" ", word).split() if _hides(word) else [word] for word in words]
    words = [opened(word) if word in _LEFT_OUT else word for word in chain.from_iterable(parts)]
    groups = list(_groups([word for word in words if word[:1] not in _DASHES or len(word) < 2]))
    known, unknown, rest = _without_unknown(groups, parser)
    given, strange = {_name(flag) for flag, _ in groups if flag}, list[str]()
    values = dict(host_table.defaults(kind))
    for flag, behind in known:
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
    return Arguments(
        values, frozenset(given), tuple(refusals), unknown, tuple(rest), tuple(_repeated(groups)), kind
    )


def _refusal(message: str, where: str, fix: str) -> Problem:
    return Problem(f"ms-swift refuses it: {message}", where, fix)


def _hides(word: str) -> bool:
    """An option that a copied page has glued to its value, or to nothing, with a blank that is none."""
    return bool(_INVISIBLE.search(word)) and _INVISIBLE.sub("", word).startswith("-")


def _invisible(word: str) -> Iterator[Problem]:
    """Blanks of web pages and word processors, which the shell takes for letters."""
    for sign in _INVISIBLE.findall(word)[:1] if _hides(word) else ():
        what = f"the invisible character U+{ord(sign):04X} is part of the word"
        yield _refusal(what, word, "type the blanks of this line again")


def _typographic(word: str) -> Iterator[Problem]:
    """Dashes and quotes of a word processor."""
    if word[:1] in _DASHES and len(word) > 1:
        yield _refusal("a long dash begins no option", word, f"--{word.lstrip(_DASHES + '-')}")
    elif word and (word[0] in _QUOTES or word[-1] in _QUOTES):
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


def _groups(words: Sequence[str]) -> Iterator[Group]:
    """Each flag with the words behind it; words before the first flag come with an empty flag."""
    starts = [at for at, word in enumerate(words) if word.startswith("--") and len(word) > 2]
    ends = [*starts, len(words)]
    if ends[0]:
        yield "", list(words[: ends[0]])
    for start, end in pairwise(ends):
        yield words[start], list(words[start + 1 : end])


def _without_unknown(
    groups: list[Group], parser: argparse.ArgumentParser
) -> tuple[list[Group], dict[str, str], list[str]]:
    """The options that can be parsed, the names whose value is not known, and words that may be options."""
    kept, unknown, opened = list[Group](), dict[str, str](), list[str]()
    for flag, values in groups:
        action = parser._option_string_actions.get(flag.split("=")[0])
        takes = 0 if not flag or "=" in flag else 1
        several = action is not None and action.nargs in ("+", "*")
        # An unquoted variable right behind an option is its value; one further on may be more options.
        opened += [shown(one) for one in values[takes:] if is_open(one) or not (flag or is_known(one))]
        open_inside = any(is_open(value) for value in values[takes:])
        own = [one for one in (flag, *(values if several else values[:takes])) if not is_known(one)]
        if flag and own and not (several and open_inside and is_known(values[0])):
            unknown[action.dest if action else _name(shown(flag))] = shown(" ".join(own)).rpartition("=")[2]
            continue
        kept.append((flag, list(filter(is_known, values))))
    return kept, unknown, opened


def _fix(message: str, name: str) -> str:
    """What a refusal of the parser asks for."""
    if match := re.search(r"ambiguous option: (\S+) could match (.*)", message):
        return nearest(match[1], match[2].split(", "), 0) or match[2]
    if match := re.search(r"invalid choice: '?(.*?)'? \(choose from (.*)\)", message):
        choices = [one.strip("' ") for one in match[2].split(",")]
        return f"{name} {nearest(match[1], choices, NEAR) or choices[0]}"
    if name in _USUAL and "invalid float" in message:
        return f"{name} {_USUAL[name]}"
    return next((fix.format(name) for sign, fix in _MENDS if sign in message), f"leave {name} out")


def _strange(words: Sequence[str], parser: argparse.ArgumentParser) -> Iterator[Problem]:
    """What the parser left over: unknown options, and words that belong to none."""
    behind_unknown = False
    for word in words:
        if word.startswith("-") and len(word) > 1:
            behind_unknown = True
            yield _unknown(word, parser)
        elif not behind_unknown:
            fix = "quote values that hold blanks, or put the option before it"
            yield _refusal(f"ValueError: remaining_argv: [{word!r}]", word, fix)


def _unknown(word: str, parser: argparse.ArgumentParser) -> Problem:
    name = word.lstrip("-").split("=")[0].replace("-", "_")
    known = [option[2:] for option in parser._option_string_actions if "_" in option or len(option) > 3]
    if name in RENAMED:
        fix = f"--{RENAMED[name]}" if RENAMED[name] else "it is gone, leave it out"
    elif name == "config":
        fix = "the file is the first word, without a flag: swift rlhf run.yaml"
    else:
        close = nearest(name, known, NEAR)
        fix = f"--{close}" if close else "leave it out"
    return _refusal(f"ValueError: remaining_argv: [{word!r}, ...]", word, fix)


def _repeated(groups: list[Group]) -> Iterator[tuple[str, tuple[str, ...]]]:
    values: dict[str, list[str]] = {}
    for flag, behind in groups:
        values.setdefault(_name(flag), []).append(flag.partition("=")[2] or " ".join(behind))
    for name, seen in values.items():
        if name and len(set(seen)) > 1 and all(map(is_known, seen)):
            yield name, tuple(seen)
