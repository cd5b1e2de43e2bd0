"""Log-probs of a micro-batch by its groups: each prompt once, each image once, no needless pass."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from torch import Tensor, nn

from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.trainer.passes import GroupPasses, restore_pixels


class GroupForward:
    """Mixin of the host's GRPO trainer. First among the mixins: a pass that is left out calls nothing."""

    _preparing = False
    _last_prepared: Any = None

    @cached_property
    def group_passes(self: Any) -> GroupPasses:
        """Made at the first generation batch, when the models are in their wrappers."""
        return GroupPasses(self, current_settings())

    def _generate_and_score_completions(self: Any, inputs: Any) -> Any:
        self.group_passes.start_generation_batch()
        return super()._generate_and_score_completions(inputs)  # type: ignore[misc]

    def _engine_infer(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.group_passes.sampling():
            return super()._engine_infer(*args, **kwargs)  # type: ignore[misc]

    def _prepare_batch_inputs(self: Any, samples: Any) -> Any:
        self._preparing = True
        try:
            return super()._prepare_batch_inputs(samples)  # type: ignore[misc]
        finally:
            self._preparing, self._last_prepared = False, None

    def _get_per_token_logps_and_entropies(
        self: Any, model: nn.Module, model_inputs: dict[str, Any], grpo_batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if self._preparing and self._last_prepared is not grpo_batch:
            self._last_prepared = grpo_batch  # the first pass over a new micro-batch is the old one
            if not self.group_passes.off.skip_old:
                return None, None
        return super()._get_per_token_logps_and_entropies(  # type: ignore[misc]
            model, model_inputs, grpo_batch, *args, **kwargs
        )

    def _get_per_token_logps_and_entropies_single(
        self: Any,
        model: nn.Module,
        model_inputs: dict[str, Any],
        grpo_batch: Any,
        compute_entropy: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        passes = self.group_passes
        if passes.takes(model) and not passes.off.stock_forward:
            batch = passes.look_at(model_inputs, grpo_batch)
            if not passes.checked:
                passes.check(model, batch, super()._get_per_token_logps_and_entropies_single)  # type: ignore[misc]
        if not passes.takes(model) or passes.off.stock_forward:
            restore_pixels(model_inputs, grpo_batch)
            return super()._get_per_token_logps_and_entropies_single(  # type: ignore[misc]
                model, model_inputs, grpo_batch, compute_entropy=compute_entropy
            )
        scores = passes.scores(model, batch, compute_entropy)
        return scores[..., 0], scores[..., 1] if compute_entropy else None
