"""What the monitors read of the trainer that they watch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Protocol

from torch import nn

from swift_grpo_ext.defects import PATCHED
from swift_grpo_ext.versions import installed_version
from swift_grpo_ext.watch.movement import local_masters, local_parameters
from swift_grpo_ext.watch.records import RunFacts


class Watched(Protocol):
    """ms-swift's GRPO trainer as the monitors see it; `swift_grpo_ext.trainer.host.Host` has the rest.

    tests/test_host_names.py holds every name against the installed ms-swift, on both ends of the range.
    """

    args: Any
    state: Any
    accelerator: Any
    model: nn.Module
    optimizer: Any
    is_deepspeed_enabled: bool
    is_fsdp_enabled: bool
    num_generations: int
    beta: float
    reward_func_names: list[str]
    sample_cls: Any
    _metrics: dict[str, defaultdict[str, list[float]]]

    def save_model(self, output_dir: str, _internal_call: bool) -> None:
        """Writes the model."""

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None: ...

    def _save_scaler(self, output_dir: str) -> None: ...

    def _save_rng_state(self, output_dir: str) -> None: ...


def run_facts(trainer: Watched, max_steps: int) -> RunFacts:
    """Facts of a run that is about to take the first of its steps, with model and optimizer prepared."""
    args = trainer.args
    zero = _zero_config(trainer)
    return RunFacts(
        num_generations=trainer.num_generations,
        beta=float(trainer.beta or 0.0),
        temperature=float(args.temperature),
        accumulation=args.gradient_accumulation_steps,
        max_steps=max_steps,
        learning_rate=args.learning_rate,
        trainable=sum(_size(each) for each in trainer.model.parameters() if each.requires_grad),
        precision=_precision(trainer.model),
        masters=any(True for _ in local_masters(trainer.optimizer)),
        zero_stage=zero.get("stage") if zero is not None else None,
        offload_optimizer=((zero or {}).get("offload_optimizer") or {}).get("device", "none") != "none",
        deepspeed=(installed_version("deepspeed") or "") if zero is not None else "",
        healed=tuple(sorted(PATCHED)),
    )


def _zero_config(trainer: Watched) -> Mapping[str, Any] | None:
    """DeepSpeed's ``zero_optimization``; None without DeepSpeed."""
    if not trainer.is_deepspeed_enabled:
        return None
    config: Mapping[str, Any] = trainer.accelerator.state.deepspeed_plugin.deepspeed_config
    return config.get("zero_optimization", {"stage": 0})


def _size(parameter: nn.Parameter) -> int:
    return int(getattr(parameter, "ds_numel", None) or parameter.numel())


def _precision(model: nn.Module) -> str:
    """The type that most of the sampled trainable tensors have."""
    types = Counter(tensor.dtype for tensor in local_parameters(model))
    return str(types.most_common(1)[0][0]).removeprefix("torch.") if types else "float32"
