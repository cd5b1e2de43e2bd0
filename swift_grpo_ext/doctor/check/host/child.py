"""Run as a child process, which imports ms-swift: what its argument classes take and refuse.

A question is a line of stdin, its answer a line of stdout, both JSON: ``{}`` asks for `table`, ``{"kind",
"values", "unknown", "ranks"}`` for `refusals`, ``{"plugins", "rewards", ...}`` for `tried`. Without network
and GPU, but for that last one; no model is loaded and no file is written.
"""

import argparse
import asyncio
import importlib.metadata
import inspect
import json
import os
import re
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

from swift_grpo_ext.doctor.check.host.table import MEGATRON
from swift_grpo_ext.errors import in_a_line

_SIZES = "swift.megatron.arguments.megatron_args"
_BATCHES = "_init_generation_batch_params"
KINDS = ("RLHFArguments", "RolloutArguments", MEGATRON)
# What megatron's argument classes import and this machine may lack. They only name things of it.
_OF_MEGATRON = (
    "megatron",
    "megatron.core",
    "megatron.core.transformer",
    "megatron.core.transformer.enums",
    "mcore_bridge",
    "mcore_bridge.model",
    "swift.megatron.utils",
)
# Methods that look at files, a server, ranks or a GPU of this machine, which may not be the one that trains;
# other rules of check look at them as far as the launch says.
_OF_THIS_MACHINE = frozenset(
    """
    _add_version _check_is_adapter _init_adapters _init_ckpt_dir _init_custom_dataset_info _init_deepspeed
    _init_device _init_distributed _init_external_vllm _init_liger _init_new_special_tokens
    _init_output_dir _init_swanlab _init_teacher_deepspeed _import_external_plugins _handle_pai_compat
    _check_mcore_bridge _load_adapter_config
    """.split()  # noqa: SIM905
)
_CHECKS = ("_check", "_init", "_process", "_set", "_handle", "_add", "_import", "_load", "__post_init__")
_ARGUMENTS = (
    "/swift/arguments/",
    "/swift/megatron/arguments/",
    "/swift/trainers/arguments.py",
    "/swift/rlhf_trainers/args_mixin.py",
)
# transformers checks last: what it says behind a refusal of ms-swift may only follow from that.
_ARGUMENTS_OF_TRANSFORMERS = ("/transformers/training_args.py", "/transformers/utils/generic.py")
_REFUSALS = (ValueError, NotImplementedError, AssertionError, ZeroDivisionError)


class _NotKnownHereError(Exception):
    """A check reads an argument whose value is not known."""


@dataclass
class _Question:
    """Arguments that are asked about, and what the checks of a class say to them, each on its own."""

    values: dict[str, Any] = field(default_factory=dict)  # the arguments that are given
    unknown: frozenset[str] = frozenset()  # names of those whose value is not known
    refused: list[tuple[str, str]] = field(default_factory=list)
    last_read: str = ""

    def read(self, arguments: Any, name: str) -> Any:
        """An attribute of the arguments, which is remembered.

        Raises:
            _NotKnownHereError: its value is not known.
        """
        if name in self.unknown:
            raise _NotKnownHereError(name)
        if name in self.values and name != "rlhf_type":  # which nearly all of them look at
            self.last_read = name
        return object.__getattribute__(arguments, name)

    def add(self, error: Exception) -> None:
        """What a check raised, if an argument class did, and the argument that it is about.

        Of a value that is not known, and of a model or a package that is not here, nothing is said.
        """
        frame = traceback.extract_tb(error.__traceback__)[-1]
        places = _ARGUMENTS if self.refused else _ARGUMENTS + _ARGUMENTS_OF_TRANSFORMERS
        if isinstance(error, _REFUSALS) and any(place in frame.filename for place in places):
            message = " ".join(f"{type(error).__name__}: {str(error) or frame.line}".split())
            given = [name for name in re.findall(r"\w+", message) if name in self.values]
            about = [*re.findall(r"(?:--|self\.)(\w+)", message), *given, self.last_read]
            self.refused.append((message, about[0]))


_now = _Question()


def _recorded(check: Callable[..., Any]) -> Callable[..., Any]:
    """The check; what it raises does not end the others."""

    @wraps(check)
    def recording(arguments: Any, *more: Any, **named: Any) -> Any:
        try:
            return check(arguments, *more, **named)
        except Exception as error:
            _now.add(error)
        return None

    return recording


@cache
def argument_class(kind: str) -> Any:
    """ms-swift's class of that name, with its arithmetic of ranks and batches as ``of_ranks``."""
    if kind != MEGATRON:
        plain: Any = getattr(import_module("swift.arguments"), kind)
        plain.of_ranks = getattr(plain, _BATCHES, None)
        # The trainer's arguments, which it makes last, see this process alone: of batches its own are asked.
        setattr(import_module("swift.rlhf_trainers.arguments").GRPOConfig, _BATCHES, _not_asked)
        return plain
    if find_spec("megatron") is None or find_spec("mcore_bridge") is None:
        import swift

        sys.modules.update({name: MagicMock() for name in _OF_MEGATRON})
        core = sys.modules["megatron.core"]
        core.__version__ = "0.16.0"  # type: ignore[attr-defined]
        sys.modules["megatron"].core = core  # type: ignore[attr-defined]
        package = ModuleType("swift.megatron")  # its own __init__ patches megatron
        package.__path__ = [str(Path(swift.__path__[0]) / "megatron")]
        sys.modules["swift.megatron"] = package
    made: Any = getattr(import_module("swift.megatron.arguments.rlhf_args"), kind)
    made.of_ranks = import_module(_SIZES).MegatronArguments._init_distributed
    # Megatron's own start needs a GPU on each rank; ms-swift's arithmetic of batches comes behind it.
    import_module(_SIZES).initialize_megatron = _not_asked  # type: ignore[attr-defined]
    return made


@cache
def _record_checks(base: type) -> None:
    """Let the checks of a class be recorded from now on."""
    for owner in base.__mro__:
        for name, check in dict(vars(owner)).items():
            is_check = name.startswith(_CHECKS) and isinstance(check, FunctionType)
            if is_check and owner.__module__.startswith("swift."):
                setattr(owner, name, _not_asked if name in _OF_THIS_MACHINE else _recorded(check))


def refusals(kind: str, values: dict[str, Any], unknown: list[str], ranks: int) -> dict[str, Any]:
    """What the class raises for these arguments.

    ``unknown`` names arguments whose value is not known; a check that reads one is left. ``ranks`` is the
    number of training processes, 0 if it is not known. Returns ``refused``: pairs of a message and the
    argument that it names, or that was read last before it.
    """
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    base = argument_class(kind)
    _record_checks(base)
    not_known = frozenset(unknown if ranks else {*unknown, "world_size"})
    vars(_now).update(vars(_Question(values, not_known)))
    own: dict[str, Any] = dict.fromkeys(_OF_THIS_MACHINE, _not_asked)
    own |= {"_init_model_info": _without_model, "model_info": None, "model_meta": None}
    own |= {"__getattribute__": lambda arguments, name: _now.read(arguments, name), "world_size": ranks}
    # Megatron's own start needs its package and a GPU, and so does bf16 as transformers checks it.
    without_gpu = {"skip_megatron_init": True} if kind == MEGATRON else {"use_cpu": True}
    try:
        if ranks and kind == MEGATRON:
            dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
        arguments = type(base.__name__, (base,), own)(**{"output_dir": "output", **values, **without_gpu})
        if ranks:
            _recorded(base.of_ranks)(arguments)  # last, when every value has its default
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return {"refused": list(dict.fromkeys(_now.refused))}


def _not_asked(*_arguments: Any, **_named: Any) -> bool:
    """In place of a check that looks at this machine."""
    return True


def _without_model(arguments: Any) -> Any:
    """In place of what downloads the model; it checks the quantisation, too."""
    import torch

    arguments.get_quantization_config()
    return arguments.torch_dtype or torch.bfloat16


def table() -> dict[str, Any]:
    """What ms-swift's parser takes, with its defaults, and the names that it knows."""
    from swift.utils.utils import _patch_get_type_hints
    from transformers import HfArgumentParser

    options: dict[str, list[Any]] = {}
    defaults: dict[str, dict[str, Any]] = {}
    names = {name: sorted(str(known) for known in read()) for name, read in _NAMES.items()}
    for kind in KINDS:
        with _patch_get_type_hints():
            parser = HfArgumentParser([argument_class(kind)])
        options[kind] = [_option(action) for action in parser._actions if action.dest != "help"]
        values = vars(parser.parse_known_args([])[0])
        defaults[kind] = {name: getattr(value, "value", value) for name, value in values.items()}
    return {"options": options, "defaults": defaults, "names": names, "columns": _columns()}


def _columns() -> dict[str, list[str]]:
    """Columns that ms-swift's own rewards cannot do without."""
    from swift.rewards import orms

    found = {}
    for name, reward in orms.items():
        _, _, *others = inspect.signature(reward.__call__).parameters.values()
        found[name] = [
            one.name for one in others if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty
        ]
    return found


def tried(
    plugins: list[str],
    rewards: list[str],
    completions: list[str],
    columns: dict[str, list[Any]],
    arguments: dict[str, Any],
    limit: int,
) -> list[tuple[str, str, str]]:
    """Call rewards: name, fault, and place in the user's file of each."""
    from swift.rewards import orms
    from swift.utils import import_external_file

    from swift_grpo_ext.rewards.runtime.scored import called

    state = SimpleNamespace(global_step=0, max_steps=1, epoch=0.0, log_history=[])
    signal.signal(signal.SIGALRM, _out_of_time)
    answers = []
    for name in rewards:
        fault = place = ""
        signal.alarm(limit)
        try:
            for path in plugins:
                import_external_file(path)
            function = orms[name](args=SimpleNamespace(**arguments))
            outcomes = asyncio.run(called(function, name, completions, {"trainer_state": state, **columns}))
            scores, reasons, *_ = zip(*outcomes, strict=True)
            odd = [f"it returns a score that is {reason}" for reason in reasons if reason]
            fault = next(iter(odd), "it scores nothing" if scores.count(None) == len(scores) else "")
        except BaseException as error:  # whatever it raises, and also that it leaves
            frames = traceback.extract_tb(error.__traceback__)
            own = [f"{Path(one.filename).name}:{one.lineno}" for one in frames if one.filename in plugins]
            fault, place = in_a_line(error)[:200], next(reversed(own), "")
        finally:
            signal.alarm(0)
        answers.append((name, fault, place))
    return answers


def _out_of_time(*_: object) -> None:
    raise TimeoutError("no score in time: give its calls a limit, or set SWIFT_GRPO_EXT_REWARD_TIMEOUT")


def _option(action: argparse.Action) -> list[Any]:
    """Flags, name, type, nargs, choices and const of an option."""
    named = {"string_to_bool": "bool", "int": "int", "float": "float"}
    kind = named.get(getattr(action.type, "__name__", "str"), "str")
    choices = list(action.choices) if action.choices is not None else None
    return [list(action.option_strings), action.dest, kind, action.nargs, choices, action.const]


def _registry(module: str, path: str, *more: str) -> Callable[[], Iterable[str]]:
    """Names in a table of a module, or the values of an enumeration, and some that stand in none."""
    return lambda: {
        *(getattr(name, "value", name) for name in attrgetter(path)(import_module(module))),
        *more,
    }


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
    "reward_funcs": _registry("swift.rewards", "orms"),
}


def _no_network(*_args: object, **_named: object) -> None:
    raise OSError("no network in this process")


def main() -> None:
    """Answer until stdin ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what packages print must not stand between the answers
    sys.stdout = sys.stderr
    if os.environ.get("HF_HUB_OFFLINE"):
        socket.socket.connect = _no_network  # type: ignore[method-assign]
    # Of Liger, which the machine that trains may have, a release that is new enough.
    real = importlib.metadata.version
    importlib.metadata.version = lambda distribution_name: (
        "99" if distribution_name == "liger-kernel" else real(distribution_name)
    )
    for line in sys.stdin:
        question = json.loads(line)
        asked = tried if "rewards" in question else refusals if question else table
        with patch.dict(os.environ):
            print(json.dumps(asked(**question)), file=out, flush=True)


if __name__ == "__main__":
    main()
