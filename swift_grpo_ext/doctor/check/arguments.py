"""Parses the words after ``swift rlhf`` with the host's own parser, without its checks that load a model."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

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


@dataclass(frozen=True)
class Refusal:
    """An argument that the host's parser refuses: its message, the argument, and the mend."""

    message: str
    where: str
    mend: str


@dataclass(frozen=True)
class Arguments:
    """Values by name as the host's parser sees them, defaults included.

    Attributes:
        values: Every argument.
        given: Names on the command line.
        refusals: What the parser does not take.
    """

    values: dict[str, Any]
    given: frozenset[str]
    refusals: tuple[Refusal, ...] = ()

    def __getattr__(self, name: str) -> Any:
        """An argument's value; None for one that this release does not have."""
        return self.__dict__["values"].get(name)


class _Refused(Exception):
    pass


@lru_cache(maxsize=1)
def _host_parser() -> argparse.ArgumentParser:
    from swift.arguments import RLHFArguments
    from swift.utils.utils import _patch_get_type_hints
    from transformers import HfArgumentParser

    with _patch_get_type_hints():
        parser: argparse.ArgumentParser = HfArgumentParser([RLHFArguments])

    def error(message: str) -> None:
        raise _Refused(message)

    parser.error = error  # type: ignore[method-assign,assignment]
    return parser


def parse(words: Sequence[str]) -> Arguments:
    """Parse the words after ``swift rlhf``; a value that the parser refuses is left out and reported."""
    parser, left, refusals = _host_parser(), list(words), []
    for _ in range(len(words)):
        try:
            namespace, unknown = parser.parse_known_args(left)
            break
        except _Refused as refused:
            name, left = _without(str(refused), left)
            refusals.append(Refusal(str(refused), f"--{name}" if name else "", "give one of its values"))
    else:
        namespace, unknown = parser.parse_known_args([])
    refusals += [_unknown(word, parser) for word in unknown if word.startswith("--")]
    given = {word[2:].split("=")[0].replace("-", "_") for word in words if word.startswith("--")}
    return Arguments(_completed(vars(namespace)), frozenset(given), tuple(refusals))


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


def _without(message: str, words: list[str]) -> tuple[str, list[str]]:
    """The argument that a message names, and the words without it and its values."""
    name = message.split(":")[0].removeprefix("argument ").split("/")[0].strip().lstrip("-")
    spelled = (f"--{name}", f"--{name.replace('_', '-')}")
    for start, word in enumerate(words):
        if word.split("=")[0] in spelled:
            end = start + 1
            while end < len(words) and not words[end].startswith("--"):
                end += 1
            return name, words[:start] + words[end:]
    return "", []


def _unknown(word: str, parser: argparse.ArgumentParser) -> Refusal:
    name = word[2:].split("=")[0].replace("-", "_")
    if name in RENAMED:
        mend = f"--{RENAMED[name]} took its place" if RENAMED[name] else "it is gone, leave it out"
    else:
        known = [option[2:] for option in parser._option_string_actions if "_" in option or len(option) > 3]
        nearest = difflib.get_close_matches(name, known, n=1)
        mend = f"did you mean --{nearest[0]}?" if nearest else "leave it out"
    return Refusal(f"ValueError: remaining_argv: [{word!r}, ...]", word, mend)
