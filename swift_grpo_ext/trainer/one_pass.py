"""One pass over a micro-batch: from the inputs of the model to the log-probs of its completions.

The way of the tensors, top down: `OnePass.run` leaves out the completions that nobody needs, `scores` cuts
the micro-batch into parts where memory asks for it, `_scores_of_part` runs the model over a pack or rows.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from swift_grpo_ext.group.forward import packed_scores, row_scores
from swift_grpo_ext.group.logps import CHUNK_BYTES
from swift_grpo_ext.group.micro_batch import MicroBatch, in_parts, narrowed
from swift_grpo_ext.group.recompute import reduced_compute
from swift_grpo_ext.group.shared_prefix import CannotPackError
from swift_grpo_ext.group.tower_calls import TowerCalls
from swift_grpo_ext.group.vision_once import VisionOnce
from swift_grpo_ext.group.zero_advantage import restored, summed
from swift_grpo_ext.ms_swift.shared import GRPOBatch
from swift_grpo_ext.parts import Enabled
from swift_grpo_ext.trainer.batches import BatchRecord, PassWork, forwarded_tokens
from swift_grpo_ext.trainer.host import Host, base_model
from swift_grpo_ext.trainer.out_of_memory import Halves
from swift_grpo_ext.trainer.samples import Scores

_ONE_CHUNK = 2**62  # bytes


@dataclass(frozen=True)
class Request:
    """What ms-swift asks for: log-probs of a micro-batch's completions under a model."""

    model: nn.Module  # the policy or the reference, in the wrappers whose hooks run with its forward
    batch: MicroBatch
    grpo_batch: GRPOBatch
    record: BatchRecord
    with_entropy: bool
    vision: VisionOnce | None  # holds the features of images; None: each pass encodes its images
    stock: Callable[[], Scores]  # ms-swift's own answer, for features that stand in
    stock_in_step: Callable[[], Scores]  # the same with images, every rank with as many calls of the tower
    stock_rows: Callable[..., Scores]  # so is this: ms-swift's `_get_per_token_logps_and_entropies_single`


class OnePass:
    """The shortest way from a request to its answer, of what is on in this run."""

    def __init__(
        self,
        host: Host,
        enabled: Enabled,
        halves: Halves,
        work: PassWork,
        tower: TowerCalls | None,
        say: Callable[[str], None],
    ) -> None:
        self._host = host
        self.enabled = enabled
        self._halves = halves  # in how many parts a micro-batch is computed
        self._work = work
        self._tower = tower  # of a family whose images can be told apart, where no features are kept
        self._say = say

    @property
    def is_stock_forward(self) -> bool:
        """Only the features of images are ours, not the forward itself."""
        return not (self.enabled.shared_prefix or self.enabled.chunked_logps)

    def run(self, request: Request) -> Scores:
        """The answer to a request; what it took is counted."""
        if self.is_stock_forward:
            return self._stock_with_features(request)
        record = request.record
        record.forwarded = None
        needed = self._without_zero_advantage(request) or request.batch
        self._work.add(record, request.batch, needed, request.vision)

        scores = self.scores(request.model, needed, request.with_entropy, request.vision, record.packs or 1)
        logps = scores[..., 0]
        entropies = scores[..., 1]
        if record.forwarded is not None:
            logps, entropies = restored(scores, record.forwarded, request.grpo_batch.old_per_token_logps)
        return logps, entropies if request.with_entropy else None

    def scores(
        self, model: nn.Module, batch: MicroBatch, with_entropy: bool, vision: VisionOnce | None, packs: int
    ) -> Float[Tensor, "batch keep 2"]:
        """Log-probs and entropies of the completions, 0 where there is no loss."""
        halves = self._halves.parts
        if packs == halves == 1 or not self.enabled.shared_prefix:
            return self._scores_of_part(model, batch, with_entropy, vision)

        def scores_of(part: MicroBatch) -> Callable[[], Float[Tensor, "batch keep 2"]]:
            return lambda: self._scores_of_part(model, part, with_entropy, vision)

        parts = [scores_of(part) for part in in_parts(batch, packs * halves)]
        # Chunks of ms-swift's keep their graphs, too; where memory has run out each is computed again.
        return summed(parts) if halves > 1 else torch.stack([run() for run in parts]).sum(0)

    def _stock_with_features(self, request: Request) -> Scores:
        assert request.vision is not None
        base = base_model(self._host, request.model)
        with request.vision.standing_in(base, request.batch.wanted()):
            return request.stock()

    def _without_zero_advantage(self, request: Request) -> MicroBatch | None:
        """The micro-batch without completions whose log-probs nobody reads; None where all are needed."""
        if not self.enabled.skip_zero_advantage or request.batch.reason:
            return None
        tokens = forwarded_tokens(self._host, request.grpo_batch)
        if tokens is None:
            return None
        try:
            part = narrowed(request.batch, tokens)
        except CannotPackError as problem:
            self._say(f"completions without an advantage were forwarded: {problem}")
            return None
        request.record.forwarded = tokens
        return part

    def _scores_of_part(
        self, model: nn.Module, batch: MicroBatch, with_entropy: bool, vision: VisionOnce | None
    ) -> Float[Tensor, "batch keep 2"]:
        base = base_model(self._host, model)
        head = base.get_output_embeddings()
        inputs = batch.forward_inputs(encoded=vision is not None and batch.media is not None)
        # Of the forward as it is now: liger puts one without it in the place of the one that ms-swift read.
        if "logits_to_keep" not in signature(base.forward).parameters:
            inputs.pop("logits_to_keep", None)
        options: dict[str, Any] = {
            "vocab_size": base.config.get_text_config().vocab_size,
            "temperature": self._host.temperature,
            "with_entropy": with_entropy,
            "chunk_bytes": CHUNK_BYTES if self.enabled.chunked_logps else _ONE_CHUNK,
        }
        tower = vision or self._tower
        features = tower.standing_in(base, batch.wanted()) if tower else nullcontext()
        if batch.pack is None:
            with features:
                return row_scores(model, head, inputs, batch.completion_mask, **options)
        with features, reduced_compute(base.get_decoder(), batch.pack, self.enabled.reduced_recompute):
            return packed_scores(model, head, inputs, batch.pack, **options)
