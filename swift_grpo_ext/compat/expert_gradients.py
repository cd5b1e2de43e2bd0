"""M3: experts replicated on the tensor-parallel ranks get only the gradient of their own rank's tokens."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import patch

if TYPE_CHECKING:
    from torch import nn


def probe() -> bool:
    """True if Megatron picks the ranks that sum expert gradients by the expert-parallel size alone."""
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
    """Sum the gradients of experts over all ranks that hold the same experts."""
    from megatron.core import mpu

    split = mpu.get_expert_tensor_parallel_world_size() != mpu.get_tensor_model_parallel_world_size()
    if split and mpu.get_expert_model_parallel_world_size() == 1:
        sum_over_expert_ranks(models)
    return wrap_model(args, models, *rest, **options)


def sum_over_expert_ranks(models: Iterable[nn.Module]) -> None:
    """Mark the weights of experts as Megatron does when expert parallelism is on.

    ``allreduce`` False puts a weight into the buffers that are summed over the expert data-parallel ranks,
    which include the tensor-parallel ranks here; otherwise it is summed over data-parallel ranks only.
    """
    for model in models:
        for name, weight in model.named_parameters():
            if ".experts." in name:  # by name: the classes of experts differ between releases
                weight.allreduce = False
