"""M3: experts that each tensor-parallel rank has in full get the gradient of that rank's tokens alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import patch

if TYPE_CHECKING:
    from torch import nn


def probe() -> bool:
    """True if Megatron decides by the size of expert parallelism alone who sums the gradients of experts."""
    from megatron.core.transformer.moe import experts

    return "expert_tensor_parallel_size" not in inspect.getsource(experts)


@patch(
    "M3",
    "swift.megatron.trainers.base:wrap_model",
    fingerprint="args, models, wrap_with_ddp=",
    probe=probe,
    remove_when="megatron-core below the release with Megatron-LM#5916 is no longer supported",
)
def fix(
    wrap_model: Callable[..., Any], args: Any, models: list[nn.Module], *rest: Any, **options: Any
) -> Any:
    """Let the gradients of experts be summed over all ranks that have the same experts."""
    from megatron.core import mpu

    split = mpu.get_expert_tensor_parallel_world_size() != mpu.get_tensor_model_parallel_world_size()
    if split and mpu.get_expert_model_parallel_world_size() == 1:
        sum_over_expert_ranks(models)
    return wrap_model(args, models, *rest, **options)


def sum_over_expert_ranks(models: Iterable[nn.Module]) -> None:
    """Mark the weights of experts as Megatron does it where expert parallelism is on.

    ``allreduce`` False puts a weight into the buffers that are summed over the expert data-parallel ranks, to
    which the tensor-parallel ranks belong here; else it is summed over the other data-parallel ranks only.
    """
    for model in models:
        for name, weight in model.named_parameters():
            if ".experts." in name:  # their classes are others in each release
                weight.allreduce = False
