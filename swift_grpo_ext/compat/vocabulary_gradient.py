"""F27: with tensor parallelism ms-swift below 4.5.3 loses a part of the gradient of every log-prob."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from swift_grpo_ext.compat.patch import in_source, patch

if TYPE_CHECKING:
    from torch import Tensor

TARGET = "swift.megatron.trainers.vocab_parallel_utils:vocab_parallel_log_softmax"


@patch(
    "F27",
    TARGET,
    fingerprint="logits",
    # The sum over the ranks' shards of the vocabulary is hidden from autograd.
    probe=lambda: in_source(TARGET, "all_reduce(sum_exp"),
    remove_when="ms-swift below 4.5.3 is no longer supported",
)
def fix(log_softmax: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """Log-softmax over all vocabulary shards; each rank has logits of shape ``(..., tokens / ranks)``.

    The sum over the shards is differentiated, too: the log-prob of a token, which one rank holds, depends on
    the logits of every rank.
    """
    import torch
    import torch.distributed as dist
    from megatron.core import mpu
    from torch.distributed.nn.functional import all_reduce

    if mpu.get_tensor_model_parallel_world_size() == 1:
        return log_softmax(logits)
    group = mpu.get_tensor_model_parallel_group()
    with torch.no_grad():
        highest = logits.amax(dim=-1, keepdim=True)
        dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=group)
    shifted = logits - highest
    total = all_reduce(shifted.exp().sum(dim=-1, keepdim=True), group=group)
    return shifted - total.log()
