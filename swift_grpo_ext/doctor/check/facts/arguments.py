"""Parses the words after ``swift rlhf`` like ms-swift's own parser, without importing it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.unknown import Unknown, Word, written
from swift_grpo_ext.errors import SwiftGrpoExtError, nearest
from swift_grpo_ext.findings import WARNING, Problem

# Names of 3.x, and of the other engine, with their names in 4.x; empty for those without a replacement.
RENAMED = {
    **dict.fromkeys(("train_type", "sft_type"), "tuner_type"),
    **dict.fromkeys(("vllm_device", "num_infer_workers", "gc_collect_after_offload", "load_safetensors"), ""),
    "multi_turn_func": "multi_turn_scheduler",
    "plugin": "external_plugins",
    "num_workers": "dataloader_num_workers",
    **dict.fromkeys(("model_id_or_path", "ckpt_dir"), "model"),
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
_QUOTE = "quote values that hold blanks, or put the option before it"
# Dashes, those of word processors too, before a name; a word with a blank in it is a value.
_FLAG = re.compile(r"[-–—―−]{1,2}[^\W\d]\S*")
_NAME = re.compile(r"[\w\"${}\[\]@*./:+=-]{1,40}")  # a word that may hold options, without a command
_MOST_WORDS = 2000


@dataclass(frozen=True)
class Arguments:
    """Values by name as ms-swift's parser sees them, defaults included.

    An attribute is an argument's value: None for one that this release does not have, `Unknown` for one that
    the launch takes from somewhere else.
    """

    values: dict[str, Any]  # every argument
    given: frozenset[str] = frozenset()  # names on the command line
    refusals: tuple[Problem, ...] = ()  # words that the parser refuses
    open: tuple[str, ...] = ()  # words that may stand for any options
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
        """Those that are known, by the command line or a default, even if an open word may set others."""
        values = {name: self.values.get(name) for name in names}
        return {name: value for name, value in values.items() if not isinstance(value, (Unknown, type(None)))}

    def is_known(self, name: str) -> bool:
        """True if its value is known."""
        return not isinstance(self.get(name), Unknown)


def parse(words: Sequence[Word], kind: str = "RLHFArguments") -> Arguments:
    """Parse the words after ``swift rlhf``; a value that the parser refuses is left out and reported.

    Raises:
        SwiftGrpoExtError: there are implausibly many words.
    """
    if len(words) > _MOST_WORDS:
        raise SwiftGrpoExtError(f"a command of {len(words)} words", fix="a command that people write")
    options = host_table.options(kind)
    parsed: dict[str, Any] = {}
    refusals: list[Problem] = []
    strange: list[Problem] = []
    groups, loose = _groups(words)
    for flag, behind in groups:
        meant = [flag] if flag in options else [known for known in options if flag and known.startswith(flag)]
        names = {options[known].name for known in meant}
        option = options[meant[0]] if len(names) == 1 else None
        most = {"+": len(behind), 0: 0}.get(option.nargs, 1) if option else 0
        own, others = behind[:most], behind[most:]
        loose += [word for word in others if isinstance(word, Unknown) and (word.many or option or not flag)]
        if option is None and flag:
            (refusals if names else strange).append(_strange(flag, names, options))
        else:
            stray = (word for word in others if isinstance(word, str))
            strange += [_refusal(f"ValueError: remaining_argv: [{word!r}]", word, _QUOTE) for word in stray]
        if option:
            try:
                parsed[option.name] = _value(option, own)
            except (ValueError, LookupError):
                refusals.append(_refused(option, own))
    # The default of GRPO is not the parser's: ms-swift sets it later.
    values = {**host_table.defaults(kind), "beta": 0.04, **parsed}
    # Ray's driver logs them; where it is not known whether it does, that is no error.
    if kind == host_table.MEGATRON and parsed.get("use_ray", False) is not False:
        what = "ms-swift does not know it, and goes on without it"
        strange = [replace(one, what=what, severity=WARNING) for one in strange]
    refusals += strange if parsed.get("ignore_args_error", False) is False else []
    rest = [word.name if _NAME.fullmatch(word.name) else "what a command prints" for word in loose]
    # The file after --config is not read here, so no option counts as missing.
    rest += [problem.where for problem in strange if problem.where == "--config"]
    return Arguments(values, frozenset(parsed), tuple(refusals), tuple(rest), kind)


def _groups(words: Sequence[Word]) -> tuple[list[tuple[str, list[Word]]], list[Unknown]]:
    """Each flag with the words after it, "" for those before the first; and words that may be more options.

    An unquoted variable right after an option is its value; a later one may be more options.
    """
    groups: list[tuple[str, list[Word]]] = [("", [])]
    loose: list[Unknown] = []
    for word in words:
        text = written(word)
        flag, sign, value = text.partition("=")
        if not _FLAG.fullmatch(text) or "$" in flag:  # a name that is not known may be any number of options
            is_open = isinstance(word, Unknown) and "$" in flag and text.startswith("--")
            word = Unknown(text, many=True) if is_open or text in ("...", "…") else word
            if isinstance(word, Unknown) and word.many and groups[-1][1]:
                loose.append(word)
            else:
                groups[-1][1].append(word)
        else:
            behind = [Unknown(value) if isinstance(word, Unknown) else value]
            groups.append((flag, behind if sign else []))
    return groups, loose


def _value(option: host_table.Option, words: Sequence[Word]) -> Any:
    """The value of an option with these words.

    Raises:
        ValueError: a word is not a number.
        LookupError: a word is not one of the choices, or the word is missing.
    """
    if any(isinstance(word, Unknown) for word in words):
        return Unknown(f"--{option.name}")
    values = [option.value(written(word)) for word in words]
    if option.nargs == "+" and values:
        return values
    return values[0] if values or option.const is None else option.const


def _refusal(message: str, where: str, fix: str) -> Problem:
    return Problem(f"ms-swift refuses it: {message}", where, fix)


def _refused(option: host_table.Option, words: Sequence[Word]) -> Problem:
    """A problem for a value that the parser refuses."""
    flag, text = f"--{option.name}", written(next(iter(words), ""))
    message, value = f"invalid {option.kind} value: {text!r}", option.kind.upper()
    if not words:
        message = "expected one argument"
    elif option.choices:
        known = list(map(str, option.choices))
        message = f"invalid choice: {text!r} (choose from {', '.join(known)})"
        value = sure(text, known, 0.7) or "with one of these"
    return _refusal(f"argument {flag}: {message}", flag, f"{flag} {value}")


def _strange(flag: str, meant: set[str], options: Mapping[str, host_table.Option]) -> Problem:
    """A problem for an unknown option, or an ambiguous abbreviation."""
    name = re.sub("^[-–—―−]+", "", flag).replace("-", "_")
    new = RENAMED.get(name)
    close = sure(name, meant or (known[2:] for known in options))
    fix = f"--{close}" if close else "its name in this release, or leave it out"
    if new is not None and (not new or f"--{new}" in options):
        fix = f"--{new}" if new else "it is gone, leave it out"
    if flag == "--config":
        fix = "the file is the first word, without a flag: swift rlhf run.yaml"
    refused = f"ambiguous option: {flag}" if meant else f"ValueError: remaining_argv: [{flag!r}, ...]"
    return _refusal(refused, flag, fix)


def sure(name: str, names: Iterable[str], cutoff: float = 0.8) -> str:
    """The known name that is most likely meant, with the same digits; empty if none is close enough."""
    numbers = re.sub(r"\D", "", name)
    return nearest(name, (known for known in names if re.sub(r"\D", "", known) == numbers), cutoff)
