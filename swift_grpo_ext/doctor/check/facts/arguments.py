"""Parses the words after ``swift rlhf`` as ms-swift's own parser does, without importing it."""

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.unknown import Unknown, Word, written
from swift_grpo_ext.errors import SwiftGrpoExtError, nearest
from swift_grpo_ext.findings import Problem

# Names of 3.x, and of the other engine, with what they are called in 4.x; empty: nothing takes their place.
RENAMED = {
    **dict.fromkeys(("train_type", "sft_type"), "tuner_type"),
    "tensor_parallel_size": "vllm_tensor_parallel_size",
    **dict.fromkeys(("vllm_device", "num_infer_workers", "gc_collect_after_offload", "load_safetensors"), ""),
    "lazy_tokenizer": "lazy_tokenize",
    "model_id_or_path": "model",
    "dtype": "torch_dtype",
    "lora_target_modules": "target_modules",
    "save": "output_dir",
    "load": "mcore_model",
    "adapter_load": "mcore_adapter",
    "max_epochs": "num_train_epochs",
    "log_interval": "logging_steps",
    "save_interval": "save_steps",
    "eval_interval": "eval_steps",
    "learning_rate": "lr",
    "lr": "learning_rate",
    "per_device_train_batch_size": "micro_batch_size",
    "micro_batch_size": "per_device_train_batch_size",
}
_DASHES = "-–—―−"  # the first, and those of word processors
_QUOTES = "“”‘’"
_MOST_WORDS = 2000


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

    def said(self, *names: str) -> dict[str, Any]:
        """Those that are given or have a default, whatever others another word may hold."""
        values = {name: self.values.get(name) for name in names}
        return {name: value for name, value in values.items() if not isinstance(value, (Unknown, type(None)))}

    def is_known(self, name: str) -> bool:
        """Whether its value is known."""
        return not isinstance(self.get(name), Unknown)


def parse(words: Sequence[Word], kind: str = "RLHFArguments") -> Arguments:
    """Parse the words after ``swift rlhf``; a value that the parser refuses is left out and reported.

    Raises:
        SwiftGrpoExtError: there are more words than anybody writes.
    """
    if len(words) > _MOST_WORDS:
        raise SwiftGrpoExtError(f"a command of {len(words)} words", fix="a command that people write")
    parser = host_table.parser(kind)
    values = dict(host_table.defaults(kind))
    given: set[str] = set()
    refusals: list[Problem] = []
    unknown: dict[str, Unknown] = {}
    rest: list[str] = []
    strange: list[str] = []
    quoted = [text for text in map(written, words) if text[:1] in _QUOTES or text[-1:] in _QUOTES]
    refusals += [
        _refusal("typographic quotes are part of the value", text, "plain quotes") for text in quoted if text
    ]
    left_out = [
        Unknown(written(word), many=True) if written(word) in ("...", "…") else word for word in words
    ]
    for flag, behind in _groups(left_out):
        action = parser._option_string_actions.get(flag.split("=")[0])
        name = action.dest if action else _name(flag)
        takes = len(behind) if action and action.nargs in ("+", "*") else int(bool(flag) and "=" not in flag)
        # An unquoted variable right behind an option is its value; one further on may be more options.
        more = [
            word.name
            for word in behind[1 if flag else 0 :]
            if isinstance(word, Unknown) and (word.many or not flag)
        ]
        own = [word for word in behind[:takes] if isinstance(word, Unknown) and word.name not in more]
        rest += map(_plain, more)
        given |= {name} if flag else set()
        if own:
            unknown[name] = Unknown(f"--{name}")
            continue
        try:
            plain = [word for word in behind if isinstance(word, str)]
            namespace, left = parser.parse_known_args([*([flag] * bool(flag)), *plain])
            values |= vars(namespace)
            given |= set(vars(namespace))
            strange += left
        except host_table.Refused as refused:
            refusals.append(_refusal(str(refused), f"--{name}", _fix(str(refused), name, parser)))
    if not values.get("ignore_args_error"):
        refusals += _strange(strange, parser)
    if "--config" in strange:  # what stands in that file is not read, so nothing is missing
        rest.append("--config")
    if kind == "RLHFArguments":
        values = _completed(values)
        if "tuner_type" in unknown and "learning_rate" not in given:
            unknown["learning_rate"] = unknown["tuner_type"]
    return Arguments(values | unknown, frozenset(given), tuple(refusals), tuple(rest), kind)


def _plain(word: str) -> str:
    """A word as it is written, or what it is, where that is more than a name."""
    return word if re.fullmatch(r"[\w\"${}\[\]@*./-]{1,40}", word) else "what a command prints"


def _refusal(message: str, where: str, fix: str) -> Problem:
    return Problem(f"ms-swift refuses it: {message}", where, fix)


def _name(flag: str) -> str:
    return flag.lstrip(_DASHES).split("=")[0].replace("-", "_")


def _completed(values: dict[str, object]) -> dict[str, object]:
    """Fill in the defaults that the host sets later, for GRPO."""
    later = {
        "beta": 0.04,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-5 if values["tuner_type"] == "full" else 1e-4,
        "truncation_strategy": "left",
    }
    return {**values, **{name: value for name, value in later.items() if values.get(name) is None}}


def _groups(words: Sequence[Word]) -> Iterator[tuple[str, list[Word]]]:
    """Each flag with the words behind it; words before the first flag come with an empty flag."""
    flag = ""
    values: list[Word] = []
    for word in words:
        text = written(word)
        if not text.startswith("--") or len(text) < 3:
            values.append(word)
            continue
        if flag or values:
            yield flag, values
        flag, values = text, []
        if isinstance(word, Unknown):  # --lr=$LR; a name that is not known may be any number of options
            name, _, value = text.partition("=")
            flag = "" if "$" in name else name
            values = [Unknown(value if flag else text, many=not flag)]
    if flag or values:
        yield flag, values


def sure(name: str, names: Iterable[str], cutoff: float = 0.8) -> str:
    """The known name that is meant by another, with the same numbers; empty where that is not sure."""
    numbers = re.sub(r"\D", "", name)
    return nearest(name, (known for known in names if re.sub(r"\D", "", known) == numbers), cutoff)


def _fix(message: str, name: str, parser: argparse.ArgumentParser) -> str:
    """What a refusal of the parser asks for."""
    if new := _renamed(name, parser):
        return new
    if match := re.search(r"(?:option|choice): '?(.*?)'? (?:could match|\(choose from) ([^)]*)", message):
        close = sure(match[1], re.findall(r"[^\s',]+", match[2]), 0.7)
        return close if close.startswith("--") else f"--{name} {close or 'with one of these'}"
    values = {"expected": "VALUE", "invalid int": "1", "invalid float": "NUMBER"}
    return next((f"--{name} {value}" for sign, value in values.items() if sign in message), "")


def _renamed(name: str, parser: argparse.ArgumentParser) -> str:
    new = RENAMED.get(name)
    is_gone = "it is gone, leave it out" if new == "" else ""
    return f"--{new}" if f"--{new}" in parser._option_string_actions else is_gone


def _strange(words: Sequence[str], parser: argparse.ArgumentParser) -> Iterator[Problem]:
    """What the parser left over: unknown options, and words that belong to none."""
    behind_unknown = False
    for word in filter(None, words):
        if word[0] in _DASHES and len(word) > 1:
            behind_unknown = True
            close = sure(_name(word), (option[2:] for option in parser._option_string_actions))
            fix = _renamed(_name(word), parser) or (
                f"--{close}" if close else "its name in this release, or leave it out"
            )
            if word == "--config":
                fix = "the file is the first word, without a flag: swift rlhf run.yaml"
            yield _refusal(f"ValueError: remaining_argv: [{word!r}, ...]", word, fix)
        elif not behind_unknown:
            fix = "quote values that hold blanks, or put the option before it"
            yield _refusal(f"ValueError: remaining_argv: [{word!r}]", word, fix)
