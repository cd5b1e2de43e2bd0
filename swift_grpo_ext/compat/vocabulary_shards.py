"""M1: with tensor parallelism Megatron leaves vocabulary shards out of the gradient norm."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import in_source, patch

if TYPE_CHECKING:
    from torch import nn

TARGET = "swift.megatron.utils.megatron_lm_utils:_ensure_fsdp_tensor_parallel_attributes"


@patch(
    "M1",
    TARGET,
    fingerprint="args, model",
    probe=lambda: in_source(TARGET, "use_megatron_fsdp"),
    remove_when="ms-swift marks shards without Megatron-FSDP, too, or Megatron does without initialization",
)
def fix(mark: Callable[..., None], args: Any, model: nn.Module) -> None:
    """Mark the shards of every model as ms-swift does only for Megatron-FSDP.

    Megatron marks a shard when it initializes it; ms-swift loads all weights and turns initialization off.
    An unmarked weight counts as a copy, and the norm leaves out copies on ranks above 0.
    """
    shards = getattr(args, "expert_tensor_parallel_size", 1)
    mark(SimpleNamespace(use_megatron_fsdp=True, expert_tensor_parallel_size=shards), model)
