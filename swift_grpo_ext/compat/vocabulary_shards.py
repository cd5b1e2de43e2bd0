"""M1: with tensor parallelism Megatron leaves shards of the vocabulary out of the norm of the gradient."""

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
    """Mark the shards of every model as ms-swift does it for Megatron-FSDP alone.

    Megatron marks a shard where it initializes it, which ms-swift, that loads all weights, turns off. What is
    not marked counts as a copy, and the norm leaves copies on ranks above 0 out.
    """
    shards = getattr(args, "expert_tensor_parallel_size", 1)
    mark(SimpleNamespace(use_megatron_fsdp=True, expert_tensor_parallel_size=shards), model)
