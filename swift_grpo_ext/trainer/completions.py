"""Completions that cannot be trained on as they come: empty ones, and those that hold an image placeholder.

The transformers engine of ms-swift drops the padding token from what was generated. In Qwen2.5-VL and Ovis2
that token, ``<|endoftext|>``, also ends a completion: one that consists of nothing else comes out empty. Its
labels are all -100, ms-swift then keeps the logits of the whole sequence, one position too many, and the run
dies ("Size does not match at dimension 1"). It gets back the one token that the engine took away.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from swift_grpo_ext.trainer.samples import VisionSample

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def fill_empty(sample: VisionSample, token: int, *, has_ids: bool = True) -> None:
    """Give each empty turn of a sample, of one turn or of several, one token.

    Of an engine that always gives ids (``has_ids``) no ids are no tokens. The text does not show that where
    it begins with what the template puts before an answer, such as Qwen3.5's empty thought.
    """
    turns = sample.response_token_ids
    if not turns and (has_ids or not sample.messages[-1]["content"]):
        sample.response_token_ids, sample.response_loss_mask = [token], []
    elif turns and isinstance(turns[0], list) and not all(turns):
        masks = sample.response_loss_mask
        sample.response_token_ids = [turn or [token] for turn in turns]
        sample.response_loss_mask = [mask or [1] for mask in masks]
    else:
        return
    sample.rollout_logprobs = []  # the engine gave none for that token


def cut_placeholders(
    sample: VisionSample, forbidden: Collection[int], tokenizer: PreTrainedTokenizerBase
) -> bool:
    """End each of a sample's turns before its first forbidden token; whether there was one."""
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
