"""Child process that imports ms-swift and reports which arguments its classes accept and refuse.

A question is a line of stdin, its answer a line of stdout, both JSON: ``{}`` asks for `table`, ``{"kind",
"values", "ranks"}`` for `refusal`. It has neither network nor GPU; no model is loaded and no file is written.
"""

import argparse
import importlib.metadata
import inspect
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock, patch

from swift_grpo_ext.doctor.check.host.table import MEGATRON, TRAIN, folder

_SIZES = "swift.megatron.arguments.megatron_args"
_BATCHES = "_init_generation_batch_params"
# Modules that megatron's argument classes import, only for names.
_OF_MEGATRON = (
    "megatron",
    "megatron.core",
    "megatron.core.transformer",
    "megatron.core.transformer.enums",
    "mcore_bridge",
    "mcore_bridge.model",
    "swift.megatron.utils",
)
# Methods that inspect the model, files, a server, ranks or a GPU, which may be on another machine; rules
# check these as far as the launch determines them.
_NOT_ASKED = """
    _add_version _check_is_adapter _init_adapters _init_ckpt_dir _init_custom_dataset_info _init_deepspeed
    _init_device _init_distributed _init_external_vllm _init_liger _init_new_special_tokens _init_output_dir
    _init_swanlab _init_teacher_deepspeed _import_external_plugins _handle_pai_compat _check_mcore_bridge
    _load_adapter_config _init_multimodal_full get_modules_to_not_convert
""".split()  # noqa: SIM905
_ARGUMENTS = (
    "/swift/arguments/",
    "/swift/megatron/arguments/",
    "/swift/trainers/arguments.py",
    "/swift/rlhf_trainers/args_mixin.py",
    "/transformers/training_args.py",
    "/transformers/utils/generic.py",
)
_REFUSALS = (ValueError, NotImplementedError, AssertionError, ZeroDivisionError)


@cache
def argument_class(kind: str) -> Any:
    """ms-swift's class of that name, with its arithmetic of ranks and batches as ``of_ranks``."""
    if kind != MEGATRON:
        plain: Any = getattr(import_module("swift.arguments"), kind)
        plain.of_ranks = getattr(plain, _BATCHES)
        # The trainer's arguments, made last, see only this process: ask this class about batches instead.
        setattr(import_module("swift.rlhf_trainers.arguments").GRPOConfig, _BATCHES, _not_asked)
        import_module("swift.trainers.arguments").TrainArgumentsMixin._init_liger = _not_asked
        return plain
    # Also where they are installed: there they need a GPU, and the answers are the same.
    stand_in = MagicMock(__version__="0.16.0")
    stand_in.core = stand_in
    sys.modules.update(dict.fromkeys(_OF_MEGATRON, stand_in))
    package = ModuleType("swift.megatron")  # its own __init__ patches megatron
    package.__path__ = [str(folder() / "megatron")]
    sys.modules["swift.megatron"] = package
    made: Any = getattr(import_module("swift.megatron.arguments.rlhf_args"), kind)
    made.of_ranks = import_module(_SIZES).MegatronArguments._init_distributed
    # Megatron's initialization needs a GPU on each rank; ms-swift's arithmetic of batches comes after it.
    import_module(_SIZES).initialize_megatron = _not_asked  # type: ignore[attr-defined]
    return made


def refusal(kind: str, values: dict[str, Any], ranks: int) -> str:
    """The first error that the class raises for these arguments; empty if they are fine.

    ``ranks`` is the number of training processes, 0 if unknown: then batches are not checked. An error about
    something else than the arguments, such as a package that is missing here, counts as none.
    """
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    base = argument_class(kind)
    own: dict[str, Any] = dict.fromkeys(_NOT_ASKED, _not_asked)
    own |= {"_init_model_info": _without_model, "model_info": None, "model_meta": None, "world_size": ranks}
    # Megatron's initialization needs its package and a GPU; so does transformers' check of bf16.
    without_gpu = {"skip_megatron_init": True} if kind == MEGATRON else {"use_cpu": True}
    try:
        if ranks and kind == MEGATRON:
            dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
        arguments = type(base.__name__, (base,), own)(**{"output_dir": "output", **values, **without_gpu})
        if ranks:
            base.of_ranks(arguments)  # last, when every value has its default
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        if isinstance(error, _REFUSALS) and any(place in frame.filename for place in _ARGUMENTS):
            return " ".join(f"{type(error).__name__}: {str(error) or frame.line}".split())
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return ""


def _not_asked(*_arguments: Any, **_named: Any) -> None:
    """Stand-in for a method that inspects this machine or the model."""


def _without_model(arguments: Any) -> Any:
    """Stand-in for the method that downloads the model; it checks the quantization, too."""
    import torch

    arguments.get_quantization_config()
    return arguments.torch_dtype or torch.bfloat16


def table() -> dict[str, Any]:
    """Options of ms-swift's parser with their defaults, and ms-swift's registered names."""
    from swift.utils.utils import _patch_get_type_hints
    from transformers import HfArgumentParser

    options: dict[str, list[Any]] = {}
    defaults: dict[str, dict[str, Any]] = {}
    names = {name: sorted(str(known) for known in read()) for name, read in _NAMES.items()}
    for kind in TRAIN:
        with _patch_get_type_hints():
            parser = HfArgumentParser([argument_class(kind)])
        options[kind] = [_option(action) for action in parser._actions if action.dest != "help"]
        values = vars(parser.parse_known_args([])[0])
        defaults[kind] = {name: getattr(value, "value", value) for name, value in values.items()}
    return {"options": options, "defaults": defaults, "names": names, "columns": _columns()}


def _columns() -> dict[str, list[str]]:
    """Columns that ms-swift's own rewards require."""
    from swift.rewards import orms

    required = {}
    for name, reward in orms.items():
        _, _, *others = inspect.signature(reward.__call__).parameters.values()
        required[name] = [
            each.name
            for each in others
            if each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty
        ]
    return required


def _option(action: argparse.Action) -> list[Any]:
    """Flags, name, type, nargs, choices and const of an option."""
    named = {"string_to_bool": "bool", "int": "int", "float": "float"}
    kind = named.get(getattr(action.type, "__name__", "str"), "str")
    choices = list(action.choices) if action.choices is not None else None
    return [list(action.option_strings), action.dest, kind, action.nargs, choices, action.const]


def _registry(module: str, path: str, *more: str) -> Callable[[], Iterable[str]]:
    """Reader of the names in a module's table, or of an enumeration's values, plus ``more`` names."""
    return lambda: {
        *(getattr(name, "value", name) for name in attrgetter(path)(import_module(module))),
        *more,
    }


_NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "callbacks": _registry("swift.callbacks", "callbacks_map"),
    "multi_turn_scheduler": _registry("swift.rollout", "multi_turns"),
    "template": _registry("swift.template", "TEMPLATE_MAPPING"),
    "model_type": _registry("swift.model", "MODEL_MAPPING"),
    "optimizer": _registry("swift.optimizers", "optimizers_map"),
    "reward_model_plugin": _registry("swift.rewards", "rm_plugins"),
    "report_to": _registry("transformers.integrations", "INTEGRATION_TO_CALLBACK", "all", "none"),
    "attn_impl": _registry("transformers", "AttentionInterface._global_mapping", "eager", "flash_attn"),
    "tuner_type": lambda: import_module("swift.arguments.base_args.base_args").get_supported_tuners(),
    "reward_funcs": _registry("swift.rewards", "orms"),
}


def _no_network(*_args: object, **_named: object) -> None:
    raise OSError("no network in this process")


def main() -> None:
    """Answer questions until stdin ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of packages must not mix with the answers
    sys.stdout = sys.stderr
    socket.socket.connect = _no_network  # type: ignore[method-assign]
    # Pretend a recent Liger release: the machine that trains may have one.
    real = importlib.metadata.version
    importlib.metadata.version = lambda distribution_name: (
        "99" if distribution_name == "liger-kernel" else real(distribution_name)
    )
    for line in sys.stdin:
        question = json.loads(line)
        asked = refusal if question else table
        with patch.dict(os.environ):
            print(json.dumps(asked(**question)), file=out, flush=True)


if __name__ == "__main__":
    main()
