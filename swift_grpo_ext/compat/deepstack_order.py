"""M8: with several rows in a batch, Qwen3-VL's deepstack adds an image's features to other images' tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import in_source, patch

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor, nn
    from transformers import PretrainedConfig

TARGET = "mcore_bridge.model.mm_gpts.qwen3_vl:Qwen3VL_Vit._get_inputs_embeds"


@patch(
    "M8",
    TARGET,
    fingerprint="self, inputs_embeds, inputs, visual, hf_config",
    probe=lambda: in_source(TARGET, "visual_pos_masks = visual_pos_masks.transpose(0, 1)"),
    remove_when="mcore-bridge has the deepstack features in the order of the mask that it transposes",
)
def fix(
    embed: Callable[..., dict[str, Tensor]],
    vit: Any,
    inputs_embeds: Tensor,
    inputs: Mapping[str, Any],
    visual: nn.Module,
    hf_config: PretrainedConfig,
) -> dict[str, Tensor]:
    """Make the tower return the deepstack features in the order in which they are added to hidden states.

    Hidden states are ``(position, row, size)``, so a mask selects the first position of all rows first. The
    tower encodes row after row, which is the same order only for a single row.
    """
    tokens = inputs["input_ids"]
    has_images = any(inputs.get(name) is not None for name in ("pixel_values", "pixel_values_videos"))
    if len(tokens) == 1 or not has_images:
        return embed(vit, inputs_embeds, inputs, visual, hf_config)

    def in_order(_tower: nn.Module, _inputs: tuple[object, ...], output: Any) -> Any:
        order = _order(tokens, hf_config)
        output.deepstack_features = [features[order] for features in output.deepstack_features]
        return output

    hook = visual.register_forward_hook(in_order)
    try:
        return embed(vit, inputs_embeds, inputs, visual, hf_config)
    finally:
        hook.remove()


def _order(tokens: Int[Tensor, "row position"], hf_config: PretrainedConfig) -> Int[Tensor, " visual"]:
    """Number of the tower's feature (row by row, images before videos) that takes the place of each."""
    images, videos = (tokens == number for number in (hf_config.image_token_id, hf_config.video_token_id))
    image_numbers = images.flatten().cumsum(0) - 1
    video_numbers = videos.flatten().cumsum(0) - 1 + images.sum()
    numbers = image_numbers.where(images.flatten(), video_numbers).view_as(tokens)
    seen = images | videos
    return numbers.T[seen.T][numbers[seen].argsort()]
