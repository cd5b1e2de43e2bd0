"""``--loss_type real`` compares the completions that it is meant to compare."""

from __future__ import annotations

from typing import Any

import torch


class RealGroups:
    """Mixin of the host's GRPO trainer for REAL (arXiv 2602.05630), which splits a group into labels.

    The host cuts every batch into groups of ``num_generations``, in evaluation too, where a group has
    ``num_generations_eval`` completions. And a completion that ``overlong_filter`` takes out of the loss has
    no advantage left, which the host takes for the label of a negative, though its answer may be right.
    """

    def _compute_loss_and_metrics(self: Any, model: Any, model_inputs: Any, grpo_batch: Any) -> Any:
        if self.loss_type != "real":
            return super()._compute_loss_and_metrics(model, model_inputs, grpo_batch)  # type: ignore[misc]
        if self.overlong_filter:
            left_out = grpo_batch.truncated_mask.unsqueeze(1)
            grpo_batch.advantages = grpo_batch.advantages.masked_fill(left_out, torch.nan)  # neither label
        size = self.num_generations
        if not self.model.training:
            self.num_generations = self.num_generations_eval
        try:
            return super()._compute_loss_and_metrics(model, model_inputs, grpo_batch)  # type: ignore[misc]
        finally:
            self.num_generations = size
