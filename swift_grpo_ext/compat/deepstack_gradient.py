"""M5: under sequence parallelism the deepstack of Qwen3-VL trains each rank's tower with its own tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import in_source, patch

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig

TARGET = "mcore_bridge.model.mm_gpts.qwen3_vl:Qwen3VL_Vit"


@patch(
    "M5",
    f"{TARGET}.prepare_model",
    fingerprint="self, hf_config",
    probe=lambda: in_source(TARGET, "deepstack_visual_embeds[:, visual_start:visual_end]"),
    remove_when="mcore-bridge sums the gradients of the deepstack features that it slices",
)
def fix(prepare: Callable[..., None], vit: Any, hf_config: PretrainedConfig) -> None:
    """Sum the gradient of the deepstack features over all ranks before it reaches the tower.

    Each rank slices out the features of its own tokens, and autograd does not see how the others use theirs.
    """
    prepare(vit, hf_config)
    if vit.config.sequence_parallel and vit.config.tensor_model_parallel_size > 1:
        vit.visual.register_forward_hook(_collecting)


def _collecting(_tower: nn.Module, _inputs: tuple[object, ...], output: Any) -> Any:
    from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region

    if getattr(output, "deepstack_features", None):
        output.deepstack_features = [*map(copy_to_tensor_model_parallel_region, output.deepstack_features)]
    return output
