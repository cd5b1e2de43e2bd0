"""A completion on its way through a run: ms-swift's sample with what we know of it, made trainable."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import takewhile
from typing import Any

from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from swift_grpo_ext.ms_swift.shared import GRPOSample


@dataclass
class VisionSample(GRPOSample):
    """ms-swift's sample of one completion."""

    prompt_key: str = ""  # equal for samples of the same prompt, images included
    held_placeholder: bool = False  # the engine answered with image placeholders, which have been cut away
    kept: bool = True  # the completion takes part in the update
    # Token ids of the engine's prompt for its last turn; empty if they are not compared.
    engine_prompt: Sequence[int] = ()
    # By reward, as logged: what was read of the completion, and why it did not score more.
    read: dict[str, str] = field(default_factory=dict)
    reason: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_row(cls, row: Mapping[str, object]) -> VisionSample:
        """A sample of a dataset row; columns with the names of our fields are the dataset's own."""
        theirs = {name: value for name, value in row.items() if name not in _OURS}
        sample: VisionSample = super().from_row(theirs)
        sample.extra.update({name: copy.deepcopy(row[name]) for name in _OURS if name in row})
        return sample


Row = dict[str, Any]  # of the dataset: messages, images and the columns that rewards read
Samples = list[VisionSample]
Inputs = dict[str, Any]  # of the model: tensors, and options such as ``use_cache``
Batch = dict[str, Any]  # ms-swift's micro-batch: ``grpo_batch``, a GRPOBatch, and ``model_inputs``, Inputs
Batches = list[Batch]
Rewards = Float[Tensor, "completions functions"]  # of all ranks; NaN: not scored
LossValue = Float[Tensor, ""]  # of a micro-batch
PerCompletion = Float[Tensor, " completions"]  # of all ranks
PerToken = Float[Tensor, "batch keep"]  # of the tokens of a micro-batch's completions
Scores = tuple[PerToken, PerToken | None]
"""Log-probs in nats, 0 at tokens without a loss; entropies in nats, None where they are not asked for."""
_OURS = {own.name for own in fields(VisionSample)} - {theirs.name for theirs in fields(GRPOSample)}


def fill_empty(sample: VisionSample, token: int, *, has_ids: bool = True) -> None:
    """Give each empty turn of a sample, of one turn or of several, one token.

    ms-swift's transformers engine drops the padding token, which in Qwen2.5-VL and Ovis2 also ends a
    completion: one of nothing else is empty, has no label, and the run dies ("Size does not match at
    dimension 1"). An engine that always gives ids (``has_ids``) and gives none sampled none.
    """
    turns = sample.response_token_ids
    if not turns and (has_ids or not sample.messages[-1]["content"]):
        sample.response_token_ids = [token]
        sample.response_loss_mask = []
    elif turns and isinstance(turns[0], list) and not all(turns):
        sample.response_token_ids = [turn or [token] for turn in turns]
        sample.response_loss_mask = [mask or [1] for mask in sample.response_loss_mask]
    else:
        return
    sample.rollout_logprobs = []  # the engine gave none for that token


def sampled_tokens(sample: VisionSample) -> list[int]:
    """Token ids of all turns of a sample."""
    return [token for turn in _turns(sample.response_token_ids) for token in turn]


def _turns(values: list[Any]) -> list[list[Any]]:
    """Values of a sample's tokens, by turn: a sample of one turn has them without the list around it."""
    return values if values and isinstance(values[0], list) else [values]


def cut_placeholders(
    sample: VisionSample, forbidden: Collection[int], tokenizer: PreTrainedTokenizerBase
) -> bool:
    """End each of a sample's turns before its first forbidden token; True if there was one."""
    ids = sample.response_token_ids
    masks = sample.response_loss_mask
    turns = _turns(ids)
    kept = [list(takewhile(lambda token: token not in forbidden, turn)) for turn in turns]
    if all(len(left) == len(turn) for left, turn in zip(kept, turns, strict=True)):
        return False
    kept = [left or [tokenizer.eos_token_id] for left in kept]
    sample.response_token_ids = kept if turns is ids else kept[0]
    if masks:
        cut = [mask[: len(left)] for mask, left in zip(_turns(masks), kept, strict=False)]
        sample.response_loss_mask = cut if isinstance(masks[0], list) else cut[0]
    sample.rollout_logprobs = []  # they were of the tokens before the cut
    sample.messages[-1] = {**sample.messages[-1], "content": tokenizer.decode(kept[-1])}
    return True
