"""One pass over a micro-batch: from the inputs of the model to the log-probs of its completions.

The path of the tensors, top down: `OnePass.run` leaves out the completions that nobody needs, `scores` cuts
the micro-batch into parts where memory asks for it, `_scores_of_part` runs the model over a pack or rows.
What a pass took is in the record that it returns.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from swift_grpo_ext.features import Features
from swift_grpo_ext.group.forward import packed_scores, row_scores
from swift_grpo_ext.group.logps import CHUNK_BYTES
from swift_grpo_ext.group.micro_batch import MicroBatch, parts_of
from swift_grpo_ext.group.recompute import reduced_compute
from swift_grpo_ext.group.shared_prefix import CannotPackError
from swift_grpo_ext.group.tower_calls import TowerCalls
from swift_grpo_ext.group.vision_once import VisionOnce
from swift_grpo_ext.group.zero_advantage import restored, summed
from swift_grpo_ext.trainer.samples import PerToken, Scores

_ONE_CHUNK = 2**62  # bytes


@dataclass(frozen=True)
class Request:
    """Request of ms-swift: log-probs of a micro-batch's completions under a model."""

    model: nn.Module  # the policy or the reference, in the wrappers whose hooks run with its forward
    base: PreTrainedModel  # the one inside of these
    batch: MicroBatch
    with_entropy: bool
    temperature: float  # divides the logits
    vision: VisionOnce | None  # holds the features of images; None: each pass encodes its images
    tokens: Bool[Tensor, "batch keep"] | None  # whose log-probs somebody reads; None: all
    others: PerToken | None  # what stands for the log-probs of the rest
    parts: int  # that are computed one after the other; 1 without a pack
    stock: Callable[[], Scores]  # ms-swift's own answer, for features of images that stand in


@dataclass(frozen=True)
class PassRecord:
    """A pass that is made: what ms-swift asked for, and what of the micro-batch went through the model."""

    logps: PerToken
    entropies: PerToken | None
    forwarded: Sequence[MicroBatch]  # its parts
    tokens: Bool[Tensor, "batch keep"] | None = None  # of completions that it went over; None: all
    note: str = ""  # worth knowing; empty as a rule


@dataclass(frozen=True)
class OnePass:
    """Shortest computation of a request's answer with the features that a run has."""

    features: Features
    tower: TowerCalls | None  # of a family whose images can be told apart, where no features are kept
    recomputes: bool = False  # memory has run out: parts are computed again in the backward pass

    @property
    def is_stock_forward(self) -> bool:
        """Only the features of images are ours, not the forward itself."""
        return not ("shared_prefix" in self.features or "chunked_logps" in self.features)

    def run(self, request: Request) -> PassRecord:
        """The answer to a request."""
        if self.is_stock_forward:
            return PassRecord(*_stock_with_features(request), [request.batch])
        tokens = request.tokens
        note = ""
        try:
            parts = parts_of(request.batch, tokens, request.parts)
        except CannotPackError as problem:
            tokens = None
            note = f"completions without an advantage were forwarded: {problem}"
            parts = parts_of(request.batch, None, request.parts)
        scores = self.scores(request, parts)
        logps = scores[..., 0]
        entropies = scores[..., 1]
        if tokens is not None:
            logps, entropies = restored(scores, tokens, request.others)
        return PassRecord(logps, entropies if request.with_entropy else None, parts, tokens, note)

    def scores(self, request: Request, parts: Sequence[MicroBatch]) -> Float[Tensor, "batch keep 2"]:
        """Log-probs and entropies of the completions of some parts, 0 at tokens without a loss."""
        if not self.recomputes:  # ms-swift's chunks keep their graphs, too
            scores = [self._scores_of_part(request, part) for part in parts]
            return scores[0] if len(scores) == 1 else torch.stack(scores).sum(0)
        return summed([partial(self._scores_of_part, request, part) for part in parts])

    def _scores_of_part(self, request: Request, batch: MicroBatch) -> Float[Tensor, "batch keep 2"]:
        base = request.base
        head = base.get_output_embeddings()
        inputs = batch.forward_inputs(encoded=request.vision is not None and batch.media is not None)
        # Read now: liger replaces the forward that ms-swift read by one without this argument.
        if "logits_to_keep" not in signature(base.forward).parameters:
            inputs.pop("logits_to_keep", None)
        options: dict[str, Any] = {
            "vocab_size": base.config.get_text_config().vocab_size,
            "temperature": request.temperature,
            "with_entropy": request.with_entropy,
            "chunk_bytes": CHUNK_BYTES if "chunked_logps" in self.features else _ONE_CHUNK,
        }
        tower = request.vision or self.tower
        with ExitStack() as stack:
            if tower:
                stack.enter_context(tower.standing_in(base, batch.wanted()))
            if batch.pack:
                recompute = "reduced_recompute" in self.features
                stack.enter_context(reduced_compute(base.get_decoder(), batch.pack, recompute))
                return packed_scores(request.model, head, inputs, batch.pack, **options)
            return row_scores(request.model, head, inputs, batch.completion_mask, **options)


def _stock_with_features(request: Request) -> Scores:
    assert request.vision is not None
    with request.vision.standing_in(request.base, request.batch.wanted()):
        return request.stock()
