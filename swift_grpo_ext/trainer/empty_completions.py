"""Completions without a token: they get back the one token that the engine took away.

The transformers engine of ms-swift drops the padding token from what was generated. In Qwen2.5-VL and Ovis2
that token, ``<|endoftext|>``, also ends a completion: one that consists of nothing else comes out empty. Its
labels are all -100, ms-swift then keeps the logits of the whole sequence, one position too many, and the run
dies ("Size does not match at dimension 1").
"""

from __future__ import annotations

from swift_grpo_ext.trainer.samples import VisionSample


def fill_empty(sample: VisionSample, token: int) -> None:
    """Give each empty turn of a sample one token.

    Args:
        sample: The host's sample after its rollout; ``response_token_ids`` of one turn, or of several.
    """
    turns = sample.response_token_ids
    if not turns and not sample.messages[-1]["content"]:
        sample.response_token_ids, sample.response_loss_mask = [token], []
    elif turns and isinstance(turns[0], list) and not all(turns):
        masks = sample.response_loss_mask
        sample.response_token_ids = [turn or [token] for turn in turns]
        sample.response_loss_mask = [mask or [1] for mask in masks]
    else:
        return
    sample.rollout_logprobs = []  # the engine gave none for that token
