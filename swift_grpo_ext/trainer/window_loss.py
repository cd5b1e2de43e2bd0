"""Losses over the tokens of a whole step keep their size, however the step is cut into micro-batches."""

from __future__ import annotations

from typing import Any

from swift.rlhf_trainers import GRPOTrainer as HostGRPOTrainer

WINDOW_LOSSES = ("cispo", "dapo", "fipo")


class WindowLoss:
    """Mixin of the host's GRPO trainer.

    These losses divide by the tokens of all micro-batches of a step; transformers divides each micro-batch's
    loss by their number once more. ms-swift 4.6 makes up for it, 4.5 does not: its gradient shrinks by
    ``gradient_accumulation_steps``. Here its loss divides by the tokens of an average micro-batch.
    """

    def _compute_loss_and_metrics(self: Any, model: Any, model_inputs: Any, grpo_batch: Any) -> Any:
        tokens = grpo_batch.num_items_in_batch
        if self.model.training and self.loss_type in WINDOW_LOSSES and not host_makes_up_for_it():
            grpo_batch.num_items_in_batch = tokens / self.current_gradient_accumulation_steps
        try:
            return super()._compute_loss_and_metrics(model, model_inputs, grpo_batch)  # type: ignore[misc]
        finally:
            grpo_batch.num_items_in_batch = tokens


def host_makes_up_for_it() -> bool:
    """The host scales these losses itself, as it does from 4.6.0 on."""
    return hasattr(HostGRPOTrainer, "_undo_gradient_accumulation_scaling")
