"""M9: Megatron saves an adapter under the weight names of older checkpoints, so PEFT loads none of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import in_source, patch

if TYPE_CHECKING:
    from torch import Tensor

TARGET = "mcore_bridge.bridge.gpt_bridge:GPTBridge._convert_hf_state_dict"


@patch(
    "M9",
    TARGET,
    fingerprint="self, hf_state_dict, to_mcore",
    probe=lambda: in_source(TARGET, "old_key, new_key = new_key, old_key"),
    remove_when="mcore-bridge saves adapters by the names of transformers' modules, or PEFT takes both",
)
def fix(
    convert: Callable[..., dict[str, Tensor]], bridge: Any, weights: dict[str, Tensor], to_mcore: bool
) -> dict[str, Tensor]:
    """Keep the names of transformers' modules when an adapter is saved.

    Full checkpoints keep the older names, which transformers knows, and so do weights sent to vLLM.
    mcore-bridge loads both.
    """
    if bridge._is_saving and bridge._peft_format:
        return weights
    return convert(bridge, weights, to_mcore)
