"""M7: with tensor parallelism, gradients of gated delta nets' norms are one rank's only, or counted twice."""

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
    # The norm after the heads is an ordinary weight: each rank has only the gradient of its own heads.
    probe=lambda: in_source(f"{NET}._apply_gated_norm", "self.out_norm("),
    remove_when="mcore-bridge sums the gradients of out_norm over the heads of all ranks, and those of the "
    "norm in in_proj once",
)
def fix(
    wrap_model: Callable[..., Any], args: Any, models: list[nn.Module], *rest: Any, **options: Any
) -> Any:
    """Give each norm the gradient of all tokens and heads, counted once.

    Under sequence parallelism the layer gathers the sequence itself (not in mcore-bridge 1.6.0): the norm
    before its projection sees all tokens on each rank, but is marked as seeing only its rank's. The norm
    after its heads sees only its rank's heads, and Megatron sums norms only under sequence parallelism.
    """
    from mcore_bridge.model.modules.gated_delta_net import GatedDeltaNet

    gathers = hasattr(GatedDeltaNet, "_set_linear_sequence_parallel")
    nets = [part for model in models for part in model.modules() if isinstance(part, GatedDeltaNet)]
    for name, weight in (pair for net in nets for pair in net.named_parameters()):
        if gathers and name == "in_proj.layer_norm_weight":  # otherwise the norm comes before the gather
            weight.sequence_parallel = False
        if name == "out_norm.weight" and weight.requires_grad and not args.sequence_parallel:
            weight.register_hook(_of_all_heads)
    return wrap_model(args, models, *rest, **options)


def _of_all_heads(gradient: Tensor) -> Tensor:
    from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region

    return reduce_from_tensor_model_parallel_region(gradient.clone())
