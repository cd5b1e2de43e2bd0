"""Which completions of a micro-batch the policy's pass is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from swift_grpo_ext.group.silent import heard, silent_rows
from swift_grpo_ext.trainer.host import Host

if TYPE_CHECKING:
    from swift.rl_core.data import GRPOBatch


def tokens_heard(host: Host, grpo_batch: GRPOBatch) -> Tensor | None:
    """Tokens ``(batch, keep)`` of completions that are not silent; None if all are needed."""
    if not host.model.training or not torch.is_grad_enabled() or grpo_batch.advantages is None:
        return None
    if grpo_batch.teacher_per_token_logps is not None:
        return None
    filtered = grpo_batch.truncated_mask if host.overlong_filter else None
    silent = silent_rows(grpo_batch.advantages, grpo_batch.completion_mask, filtered)
    return heard(grpo_batch.completion_mask, silent) if bool(silent.any()) else None
