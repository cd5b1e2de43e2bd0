"""A run without a teacher is not refused for having one."""

from __future__ import annotations

from typing import Any


class NoPhantomTeacher:
    """Mixin of the host's GRPO trainer.

    ms-swift 4.6.0 sets ``_has_teacher`` in every run, because a dataset might have a ``teacher_prompt``
    column. Its loss then refuses ``fipo``, ``real`` and the off-policy sequence mask, which cannot take a
    teacher, in runs that have none.
    """

    def _compute_loss_and_metrics(self: Any, model: Any, model_inputs: Any, grpo_batch: Any) -> Any:
        before = self._has_teacher
        self._has_teacher = before and grpo_batch.teacher_per_token_logps is not None
        try:
            return super()._compute_loss_and_metrics(model, model_inputs, grpo_batch)  # type: ignore[misc]
        finally:
            self._has_teacher = before
