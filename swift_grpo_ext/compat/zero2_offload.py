"""B1: ZeRO-2 with the optimizer on the CPU counts only the first and the last micro-batch of a step."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from swift_grpo_ext.compat.patch import Target, patch
from swift_grpo_ext.swap import swapped

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

_OPTIMIZER = "deepspeed.runtime.zero.stage_1_and_2:DeepSpeedZeroOptimizer"
TARGET = f"{_OPTIMIZER}.async_accumulate_grad_in_cpu_via_gpu"


def probe() -> bool:
    """True if the sum of the gradients is written to host memory only in the first micro-step."""
    branches = inspect.getsource(Target(TARGET).get()).rpartition("if self.micro_step_id > 0:")[2]
    return "else:" in branches


@patch(
    "B1",
    TARGET,
    fingerprint="self, param",
    probe=probe,
    remove_when="DeepSpeed below 0.19.0 is no longer supported",
)
def fix(accumulate: Callable[..., object], optimizer: Optimizer, param: nn.Parameter) -> None:
    """Keep the running sum after every micro-step.

    The original copies the gradient to host memory in the first micro-step; later it adds the stored sum to
    the gradient without writing it back. So it runs again as in the first. ZeRO-1 calls it once per step.
    """
    accumulate(optimizer, param)
    if optimizer.micro_step_id > 0 and optimizer.partition_gradients:
        with swapped(optimizer, "micro_step_id", 0):
            accumulate(optimizer, param)
