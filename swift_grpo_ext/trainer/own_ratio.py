"""On-policy the importance ratio is 1, also where an old pass is made for others."""

from __future__ import annotations

from typing import Any

from swift_grpo_ext.settings import disabled


class OwnRatio:
    """Mixin of the host's GRPO trainer.

    A KL penalty in rewards and a teacher need log-probs before the update. Those come from a pass of its own,
    with other dropout masks and other sums, so a ratio of them is not 1. Where a micro-batch serves a single
    update, the loss takes the policy's own log-probs, as the host's does when there are no old ones.
    """

    def _compute_loss_and_metrics(self: Any, model: Any, model_inputs: Any, grpo_batch: Any) -> Any:
        if not disabled("trainer.skip_old_logps") and not self.old_policy():
            grpo_batch.old_per_token_logps = None  # who needed them has had them
        return super()._compute_loss_and_metrics(model, model_inputs, grpo_batch)  # type: ignore[misc]
