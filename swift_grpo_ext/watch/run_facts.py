"""Reads off a trainer what does not change during its run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from swift_grpo_ext.defects import PATCHED
from swift_grpo_ext.versions import installed_version
from swift_grpo_ext.watch.movement import local_masters, local_parameters
from swift_grpo_ext.watch.records import RunFacts
from swift_grpo_ext.watch.watched import Watched


def run_facts(trainer: Watched, max_steps: int) -> RunFacts:
    """Facts of a run that is about to take its first step.

    Args:
        trainer: The host's trainer, with its model and optimizer prepared.
        max_steps: Optimizer steps of the whole run.
    """
    args = trainer.args
    zero = _zero_config(trainer)
    return RunFacts(
        num_generations=trainer.num_generations,
        beta=float(trainer.beta or 0.0),
        temperature=float(args.temperature),
        accumulation=args.gradient_accumulation_steps,
        max_steps=max_steps,
        learning_rate=args.learning_rate,
        trainable=sum(
            _size(parameter) for parameter in trainer.model.parameters() if parameter.requires_grad
        ),
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


def _size(parameter: Any) -> int:
    return int(getattr(parameter, "ds_numel", None) or parameter.numel())


def _precision(model: object) -> str:
    """The type that most of the sampled trainable tensors have."""
    types = Counter(tensor.dtype for tensor in local_parameters(model))
    return str(types.most_common(1)[0][0]).removeprefix("torch.") if types else "float32"
