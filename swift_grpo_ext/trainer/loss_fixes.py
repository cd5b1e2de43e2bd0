"""Defects of ms-swift's loss that we fix while it runs: one function each, which goes with its defect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from swift.rl_core.data import GRPOBatch
from swift.rlhf_trainers import GRPOTrainer as HostGRPOTrainer

from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.host import Host


@contextmanager
def loss_fixes(host: Host, grpo_batch: GRPOBatch) -> Iterator[None]:
    """While this is open, ms-swift computes the loss of a micro-batch as it is meant."""
    with no_phantom_teacher(host, grpo_batch), whole_window(host, grpo_batch), real_groups(host, grpo_batch):
        yield


def no_phantom_teacher(host: Host, grpo_batch: GRPOBatch) -> AbstractContextManager[None]:
    """While this is open, the run has a teacher only if the micro-batch has its log-probs.

    ms-swift 4.6.0 sets ``_has_teacher`` in every run, because a dataset might have a ``teacher_prompt``
    column. Its loss then refuses ``fipo``, ``real`` and the off-policy sequence mask, which cannot take a
    teacher, in runs that have none. Goes when ms-swift looks at the batch.
    """
    present = host._has_teacher and grpo_batch.teacher_per_token_logps is not None
    return swapped(host, "_has_teacher", present)


def whole_window(host: Host, grpo_batch: GRPOBatch) -> AbstractContextManager[None]:
    """While this is open, a loss over a step's tokens divides by the tokens of an average micro-batch.

    These losses divide by the tokens of all micro-batches of a step; transformers divides each micro-batch's
    loss by their number once more. ms-swift 4.6 makes up for it, 4.5 does not: its gradient shrinks by
    ``gradient_accumulation_steps``. Goes with ms-swift 4.5.
    """
    made_up_for = hasattr(HostGRPOTrainer, "_undo_gradient_accumulation_scaling")
    if not host.model.training or host.loss_type not in ("cispo", "dapo", "fipo") or made_up_for:
        return nullcontext()
    tokens = grpo_batch.num_items_in_batch / host.current_gradient_accumulation_steps
    return swapped(grpo_batch, "num_items_in_batch", tokens)


def real_groups(host: Host, grpo_batch: GRPOBatch) -> AbstractContextManager[None]:
    """While this is open, ``--loss_type real`` splits the right completions into labels (arXiv 2602.05630).

    ms-swift cuts every batch into groups of ``num_generations``, in evaluation too, where a group has
    ``num_generations_eval`` completions. And a completion that ``overlong_filter`` takes out of the loss has
    no advantage left, which ms-swift takes for the label of a negative, though its answer may be right.
    Goes when ms-swift does both itself.
    """
    if host.loss_type != "real":
        return nullcontext()
    if host.overlong_filter:
        left_out = grpo_batch.truncated_mask.unsqueeze(1)
        grpo_batch.advantages = grpo_batch.advantages.masked_fill(left_out, torch.nan)  # neither label
    size = host.num_generations if host.model.training else host.num_generations_eval
    return swapped(host, "num_generations", size)
