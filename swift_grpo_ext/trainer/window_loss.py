"""Losses over the tokens of a whole step keep their size, however the step is cut into micro-batches.

These losses divide by the tokens of all micro-batches of a step; transformers divides each micro-batch's loss
by their number once more. ms-swift 4.6 makes up for it, 4.5 does not: its gradient shrinks by
``gradient_accumulation_steps``. Here its loss divides by the tokens of an average micro-batch.

Goes with ms-swift 4.5.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from swift.rlhf_trainers import GRPOTrainer as HostGRPOTrainer

from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.host import Host

if TYPE_CHECKING:
    from swift.rl_core.data import GRPOBatch

WINDOW_LOSSES = ("cispo", "dapo", "fipo")


def whole_window(host: Host, grpo_batch: GRPOBatch) -> AbstractContextManager[None]:
    """While this is open, the loss divides by the tokens of an average micro-batch."""
    if not host.model.training or host.loss_type not in WINDOW_LOSSES or host_makes_up_for_it():
        return nullcontext()
    tokens = grpo_batch.num_items_in_batch / host.current_gradient_accumulation_steps
    return swapped(grpo_batch, "num_items_in_batch", tokens)


def host_makes_up_for_it() -> bool:
    """ms-swift scales these losses itself, as it does from 4.6.0 on."""
    return hasattr(HostGRPOTrainer, "_undo_gradient_accumulation_scaling")
