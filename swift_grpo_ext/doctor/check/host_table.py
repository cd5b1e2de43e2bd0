"""What ms-swift's parser takes and which names it knows, as a table: importing ms-swift takes ten seconds.

The table of the tested releases is part of the package; that of others is made once, by importing them, and
kept in the user's cache. ``python -m swift_grpo_ext.doctor.check.host_table`` writes the package's own.
"""

import argparse
import ast
import dataclasses
import json
import os
import typing
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from textwrap import indent
from typing import Any

from swift_grpo_ext.folders import write_whole
from swift_grpo_ext.versions import installed_version

OWN = Path(__file__).with_name("host_table.json")
KINDS = ("RLHFArguments", "RolloutArguments")
MEGATRON = "MegatronRLHFArguments"
_MEGATRON = (  # files and classes of its arguments, each overriding the ones before it
    ("megatron_args.py", "RLHFMegatronArgumentsMixin"),
    ("megatron_args.py", "MegatronTunerMixin"),
    ("megatron_args.py", "MegatronArguments"),
    ("megatron_base_args.py", "MegatronBaseArguments"),
    ("sft_args.py", "MegatronSftArguments"),
    ("rlhf_args.py", "MegatronRLHFArguments"),
)
_FORM = 3  # of the table; a table of another form is made again
_OF = ("ms-swift", "transformers", "trl", "peft")
Option = list[Any]  # [option strings, type, nargs, choices, default, const]


class Refused(Exception):
    """The parser refuses an argument."""


def versions() -> dict[str, str | None]:
    """The releases that a table is made of."""
    return {"form": str(_FORM), **{name: installed_version(name) for name in _OF}}


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """The table of the installed releases: ``options`` by kind, ``names`` by argument, ``architectures``."""
    wanted = versions()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cached = cache / "swift-grpo-ext" / f"ms-swift-{'-'.join(map(str, wanted.values()))}.json"
    for path in (OWN, cached):
        with suppress(OSError, ValueError, KeyError):
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if found["versions"] == wanted:
                return found
    made = make()
    with suppress(OSError):  # a folder that cannot be written: it is made again the next time
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_whole(cached, as_text(made).encode())
    return made


def folder() -> Path:
    """Where ms-swift is installed, without importing it."""
    spec = find_spec("swift")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("ms-swift is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def names(argument: str) -> frozenset[str]:
    """The names that ms-swift knows for an argument: ``template``, ``reward_funcs``, ..."""
    return frozenset(table()["names"][argument])


@lru_cache(maxsize=4)
def parser(kind: str) -> argparse.ArgumentParser:
    """A parser that takes what ms-swift's own takes, without the defaults, and raises `Refused`."""
    made = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)

    def error(message: str) -> None:
        raise Refused(message)

    made.error = error  # type: ignore[method-assign,assignment]
    for flags, of_type, nargs, choices, _, const in table()["options"][kind]:
        if of_type == "store_false":
            dest = flags[0][2:].replace("no_", "", 1)
            made.add_argument(*flags, action="store_false", default=argparse.SUPPRESS, dest=dest)
        else:
            made.add_argument(*flags, const=const, type=_type(of_type, choices), nargs=nargs, choices=choices)
    return made


def defaults(kind: str) -> dict[str, Any]:
    """Values of options that are not given; a text is read as one that is given, as argparse does."""
    return {
        flags[0][2:]: _type(of_type, choices)(default) if isinstance(default, str) else default
        for flags, of_type, _, choices, default, _ in table()["options"][kind]
    }


def _type(name: str, choices: list[object] | None) -> Callable[[str], object]:
    if name == "choice":
        by_text = {str(choice): choice for choice in choices or ()}
        return lambda text: by_text.get(text, text)
    kinds: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": _boolean}
    return kinds.get(name, str)


def _boolean(text: str) -> bool:
    """As transformers reads it."""
    words = ("yes", "true", "t", "y", "1", "no", "false", "f", "n", "0")
    if text.lower() in words:
        return text.lower() in words[:5]
    wanted = "yes/no, true/false, t/f, y/n, 1/0 (case insensitive)."
    raise argparse.ArgumentTypeError(f"Truthy value expected: got {text} but expected one of {wanted}")


def make() -> dict[str, object]:
    """The table, by importing ms-swift."""
    from swift import arguments
    from swift.utils.utils import _patch_get_type_hints
    from transformers import HfArgumentParser

    classes = {
        **{kind: getattr(arguments, kind) for kind in KINDS},
        MEGATRON: _megatron(arguments.BaseArguments),
    }
    options = {}
    for kind, of_kind in classes.items():
        with _patch_get_type_hints():
            actions = HfArgumentParser([of_kind])._actions
        options[kind] = [_option(action) for action in actions if action.dest != "help"]
    known = {name: sorted(str(one) for one in read()) for name, read in _NAMES.items()}
    return {"versions": versions(), "options": options, "names": known, "architectures": _architectures()}


def _megatron(base: type) -> type:
    """The fields of the arguments of ``megatron rlhf``: importing their own class needs megatron-core."""
    import torch

    fields = dict[str, str]()  # by name: a class overrides the ones before it
    for file, owner in _MEGATRON:
        tree = ast.parse((folder() / "megatron" / "arguments" / file).read_text(encoding="utf-8"))
        own = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
        parts = [one for node in own for one in node.body if isinstance(one, ast.AnnAssign)]
        fields |= {ast.unparse(one.target): ast.unparse(one) for one in parts}
    names = {**vars(typing), **vars(dataclasses), "torch": torch, "Base": base}
    # Code of the installed ms-swift, which a run imports; never of a script or a data set.
    exec("@dataclass\nclass Megatron(Base):\n" + indent("\n".join(fields.values()), "    "), names)
    made: type = names["Megatron"]
    return made


def as_text(made: dict[str, Any]) -> str:
    """A table as JSON, an option, an argument or an architecture a line."""

    def lines(found: Any) -> str:
        pairs = found.items() if isinstance(found, dict) else ((None, one) for one in found)
        rows = (("" if name is None else f"{json.dumps(name)}: ") + json.dumps(one) for name, one in pairs)
        return ",\n".join(rows)

    options = ",\n".join(f'"{kind}": [\n{lines(found)}\n]' for kind, found in made["options"].items())
    rest = ",\n".join(
        f'"{part}": {{\n{lines(made[part])}\n}}' for part in ("versions", "names", "architectures")
    )
    return f'{{"options": {{\n{options}\n}},\n{rest}}}\n'


def _option(action: argparse.Action) -> Option:
    choices = list(action.choices) if action.choices is not None else None
    named = {"string_to_bool": "bool", "int": "int", "float": "float"}
    kind = named.get(getattr(action.type, "__name__", "str"), "str") if choices is None else "choice"
    kind = "store_false" if isinstance(action, argparse._StoreFalseAction) else kind
    default = getattr(action.default, "value", action.default)
    return [list(action.option_strings), kind, action.nargs, choices, default, action.const]


def _architectures() -> dict[str, list[str]]:
    """Types of model by the architecture that a checkpoint's config.json names."""
    from swift.model import MODEL_MAPPING

    found: dict[str, list[str]] = {}
    for name, meta in MODEL_MAPPING.items():
        for architecture in meta.architectures or ():
            found.setdefault(architecture, []).append(name)
    return found


def _models() -> Iterable[str]:
    """Names of folders that say the type of model where the architecture does not."""
    from swift.model import MODEL_MAPPING

    several = {name for types in _architectures().values() if len(types) > 1 for name in types}
    groups = [group for name in several for group in MODEL_MAPPING[name].model_groups]
    ids = [(model.ms_model_id, model.hf_model_id) for group in groups for model in group.models]
    return {str(one).rsplit("/", 1)[-1].lower() for pair in ids for one in pair if one}


def _registry(module: str, path: str, *more: str) -> Callable[[], Iterable[str]]:
    """Names in a table of a module, or the values of an enumeration, and some that stand in none."""
    return lambda: {*(getattr(one, "value", one) for one in attrgetter(path)(import_module(module))), *more}


_NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "lr_scheduler_type": _registry("transformers", "SchedulerType"),
    "callbacks": _registry("swift.callbacks", "callbacks_map"),
    "multi_turn_scheduler": _registry("swift.rollout", "multi_turns"),
    "template": _registry("swift.template", "TEMPLATE_MAPPING"),
    "model_type": _registry("swift.model", "MODEL_MAPPING"),
    "optimizer": _registry("swift.optimizers", "optimizers_map"),
    "reward_model_plugin": _registry("swift.rewards", "rm_plugins"),
    "eval_strategy": _registry("transformers.trainer_utils", "IntervalStrategy"),
    "report_to": _registry("transformers.integrations", "INTEGRATION_TO_CALLBACK", "all", "none"),
    "attn_impl": _registry("transformers", "AttentionInterface._global_mapping", "eager", "flash_attn"),
    "tuner_type": lambda: import_module("swift.arguments.base_args.base_args").get_supported_tuners(),
    "model": _models,
    "reward_funcs": _registry("swift.rewards", "orms"),
}


if __name__ == "__main__":
    OWN.write_text(as_text(make()), encoding="utf-8")
