"""``--loss_type real`` compares the completions that it is meant to compare (REAL, arXiv 2602.05630).

It splits a group into labels. ms-swift cuts every batch into groups of ``num_generations``, in evaluation
too, where a group has ``num_generations_eval`` completions. And a completion that ``overlong_filter`` takes
out of the loss has no advantage left, which ms-swift takes for the label of a negative, though its answer may
be right.

Goes when ms-swift does both itself.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from swift.rl_core.data import GRPOBatch

from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.host import Host


def real_groups(host: Host, grpo_batch: GRPOBatch) -> AbstractContextManager[None]:
    """While this is open, the groups of REAL are those of the mode, without what was filtered out."""
    if host.loss_type != "real":
        return nullcontext()
    if host.overlong_filter:
        left_out = grpo_batch.truncated_mask.unsqueeze(1)
        grpo_batch.advantages = grpo_batch.advantages.masked_fill(left_out, torch.nan)  # neither label
    size = host.num_generations if host.model.training else host.num_generations_eval
    return swapped(host, "num_generations", size)
