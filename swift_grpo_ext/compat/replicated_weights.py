"""M4: with tensor parallelism the gradient norm counts a replicated LoRA factor once per rank."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import patch

if TYPE_CHECKING:
    from torch import nn


def probe() -> bool:
    """True if transformer_engine marks every weight as a shard, also a replicated one."""
    from transformer_engine.pytorch import Linear

    return "is_parallel=self.parallel_mode" not in inspect.getsource(Linear)


@patch(
    "M4",
    "swift.megatron.trainers.base:wrap_model",
    fingerprint="args, models, wrap_with_ddp=",
    probe=probe,
    remove_when="transformer_engine marks shards only, or Megatron takes the mark off its replicated weights",
)
def fix(
    wrap_model: Callable[..., Any], args: Any, models: list[nn.Module], *rest: Any, **options: Any
) -> Any:
    """Remove the shard mark from replicated weights.

    transformer_engine marks the weight of every linear layer, and the norm counts marked weights on every
    rank. Megatron's class for a layer that is not split is `TELinear` itself; its subclasses are split.
    """
    from megatron.core.extensions.transformer_engine import TELinear

    for model in models:
        for module in model.modules():
            if type(module) is TELinear:
                module.weight.tensor_model_parallel = False
    return wrap_model(args, models, *rest, **options)
