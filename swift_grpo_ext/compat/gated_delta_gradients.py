"""M7: with tensor parallelism the norms of gated delta nets get gradients of one rank, or counted twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import in_source, patch

if TYPE_CHECKING:
    from torch import Tensor, nn

NET = "mcore_bridge.model.modules.gated_delta_net:GatedDeltaNet"


@patch(
    "M7",
    "swift.megatron.trainers.base:wrap_model",
    fingerprint="args, models, wrap_with_ddp=",
    # The norm behind the heads is a weight like any other, of which each rank has its heads' gradient.
    probe=lambda: in_source(f"{NET}._apply_gated_norm", "self.out_norm("),
    remove_when="mcore-bridge sums the gradients of out_norm over the heads of all ranks, and those of the "
    "norm in in_proj once",
)
def fix(
    wrap_model: Callable[..., Any], args: Any, models: list[nn.Module], *rest: Any, **options: Any
) -> Any:
    """Let each norm have the gradient of all tokens and heads, once.

    Under sequence parallelism the layer gathers the sequence itself (not in mcore-bridge 1.6.0): the norm in
    front of its projection sees all tokens on each rank, and is marked as one that sees its rank's. The norm
    behind its heads sees those of its rank, and Megatron adds norms up under sequence parallelism alone.
    """
    from mcore_bridge.model.modules.gated_delta_net import GatedDeltaNet

    gathers = hasattr(GatedDeltaNet, "_set_linear_sequence_parallel")
    nets = [part for model in models for part in model.modules() if isinstance(part, GatedDeltaNet)]
    for name, weight in (pair for net in nets for pair in net.named_parameters()):
        if gathers and name == "in_proj.layer_norm_weight":  # else the norm is in front of the gathering
            weight.sequence_parallel = False
        if name == "out_norm.weight" and weight.requires_grad and not args.sequence_parallel:
            weight.register_hook(_of_all_heads)
    return wrap_model(args, models, *rest, **options)


def _of_all_heads(gradient: Tensor) -> Tensor:
    from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region

    return reduce_from_tensor_model_parallel_region(gradient.clone())
