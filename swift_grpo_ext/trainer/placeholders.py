"""Completions that hold an image placeholder all the same: cut there, and not scored."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from accelerate.utils import gather_object
from swift.utils import get_logger

from swift_grpo_ext.models.families import forbidden_token_ids

logger = get_logger()


class NoPlaceholders:
    """Mixin of the host's GRPO trainer: the last line of the placeholder guard.

    Engines are told not to sample these tokens. One that does not know (a rollout server without our
    plugin) may send some; encoded with its prompt, such a completion would crash the forward or pass for a
    part of an image.
    """

    def _postprocess_rollout_outputs(self: Any, samples: list[Any], outputs: list[Any]) -> list[Any]:
        results = super()._postprocess_rollout_outputs(samples, outputs)  # type: ignore[misc]
        forbidden = forbidden_token_ids(self.template.config, self.template.tokenizer)
        for sample in results:
            if cut_placeholders(sample, forbidden, self.template.tokenizer):
                sample.held_placeholder = True
        return list(results)

    def _compute_rewards_per_func(self: Any, samples: list[Any]) -> torch.Tensor:
        rewards = super()._compute_rewards_per_func(samples)  # type: ignore[misc]
        held = gather_object([getattr(sample, "held_placeholder", False) for sample in samples])
        if any(held):
            rewards[torch.tensor(held, device=rewards.device)] = torch.nan
            logger.warning_once(
                "swift-grpo-ext: completions with image placeholders arrived and are not scored; does the "
                "rollout server load the plugin?"
            )
        mode = "train" if self.model.training else "eval"
        self._metrics[mode]["completions/with_placeholder"].append(sum(held) / max(1, len(held)))
        return torch.as_tensor(rewards)


def cut_placeholders(sample: Any, forbidden: Collection[int], tokenizer: Any) -> bool:
    """End each of a sample's turns before its first forbidden token; whether there was one.

    Args:
        sample: The host's sample after its rollout; ``response_token_ids`` of one turn, or of several.
        forbidden: Ids of placeholders and indicators.
        tokenizer: Gives the end-of-sequence token that an empty turn is left with.
    """
    ids = sample.response_token_ids
    nested = bool(ids) and isinstance(ids[0], list)
    turns = ids if nested else [ids]
    cuts = [_first(turn, forbidden) for turn in turns]
    if all(cut is None for cut in cuts):
        return False
    kept = [(turn[:cut] or [tokenizer.eos_token_id]) for turn, cut in zip(turns, cuts, strict=True)]
    sample.response_token_ids = kept if nested else kept[0]
    masks = sample.response_loss_mask
    if masks:
        lengths = [len(turn) for turn in kept]
        several = isinstance(masks[0], list)
        cut_masks = [
            mask[:length] for mask, length in zip(masks if several else [masks], lengths, strict=True)
        ]
        sample.response_loss_mask = cut_masks if several else cut_masks[0]
    sample.rollout_logprobs = []  # of other tokens than those that are left
    sample.messages[-1] = {**sample.messages[-1], "content": tokenizer.decode(kept[-1])}
    return True


def _first(tokens: list[int], forbidden: Collection[int]) -> int | None:
    return next((place for place, token in enumerate(tokens) if token in forbidden), None)
