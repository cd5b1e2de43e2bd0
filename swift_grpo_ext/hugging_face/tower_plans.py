"""Computes in main memory what Qwen's vision towers derive from grids alone, without waiting for the GPU.

Positions, windows and lengths come from functions of transformers (since 5.12) that read a grid value by
value, and attention without flash's kernels reads the lengths three times in every layer: on a GPU the CPU
waits each time until the queue of kernels is empty. Here these functions get a copy of the grid in main
memory, and their results move to the device, except lengths that are only read.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from swift_grpo_ext.swap import swapped

_PLANS = "get_vision_"
_LENGTHS = "torch.int32"  # the type of cumulative lengths alone


def planned_in_main_memory(owner: Any, encode: Callable[..., Any]) -> Callable[..., Any]:
    """An encoder of Qwen's with plans that do not wait for the GPU; others are returned as they are.

    GLM's towers take lengths and grids into their embeddings as well, so they need them on the device.
    """
    module = sys.modules[type(owner).__module__]
    plans = {name: plan for name, plan in vars(module).items() if name.startswith(_PLANS)}
    if not plans or ".qwen" not in module.__name__:
        return encode
    config = getattr(owner.config, "vision_config", owner.config)
    keeps_lengths = "flash" not in str(config._attn_implementation)

    def encoded(*args: Any, **kwargs: Any) -> Any:
        grid = next(filter(_is_grid, (*args, *kwargs.values())))
        copy = grid.cpu()

        def moved(value: Any) -> Any:
            is_read = keeps_lengths and str(getattr(value, "dtype", "")) == _LENGTHS
            return value.to(grid.device, non_blocking=True) if hasattr(value, "to") and not is_read else value

        def planned(plan: Callable[..., Any], _grid: Any, *rest: Any, **options: Any) -> Any:
            made = plan(copy, *rest, **options)
            return tuple(map(moved, made)) if isinstance(made, tuple) else moved(made)

        with ExitStack() as stack:
            for name, plan in plans.items():
                stack.enter_context(swapped(module, name, partial(planned, plan)))
            return encode(*args, **kwargs)

    return encoded


def _is_grid(value: Any) -> bool:
    return getattr(value, "shape", ())[1:] == (3,) and not value.is_floating_point()
