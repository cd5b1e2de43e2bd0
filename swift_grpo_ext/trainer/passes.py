"""The passes over a generation batch: old, reference and policy log-probs, each by the shortest way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from swift.utils import get_logger
from torch import Tensor, nn

from swift_grpo_ext.group.forward import pack_query, packed_scores, row_scores
from swift_grpo_ext.group.micro_batch import MicroBatch, look_at
from swift_grpo_ext.group.prefill import shared_prefill
from swift_grpo_ext.group.recompute import sparing
from swift_grpo_ext.group.self_check import mismatch, without_dropout
from swift_grpo_ext.group.support import take_packs
from swift_grpo_ext.group.vision import Images
from swift_grpo_ext.group.vision_once import VisionOnce, share_weights
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.models.template import VisionTemplate
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.distributed import agreed_max, gathers_in_sampling, gathers_parameters
from swift_grpo_ext.trainer.features import Off, base_model, decide, frozen_modules
from swift_grpo_ext.trainer.vision_lockstep import blank_encoder, in_step

logger = get_logger()
_ONE_CHUNK = 2**62  # bytes
_CHECKED_ROWS = 8


_LOGITS_CHUNK = 256 * 2**20  # bytes of fp32 logits at a time, with chunked log-probs


class GroupPasses:
    """What the trainer's mixin asks for log-probs.

    Args:
        trainer: The trainer, ready to train.
        settings: The package's switches.

    Attributes:
        off: What is off, and why.
        checked: The first micro-batch has been held against the stock path.
    """

    def __init__(self, trainer: Any, settings: Settings) -> None:
        self.trainer, self.settings = trainer, settings
        self.checked = settings.disables("trainer.self_check")
        self._told: set[str] = set()
        base = base_model(trainer, trainer.model)
        self._facts = family_of(base.config) if trainer.is_multimodal else None
        self.turn_off(decide(trainer, settings))
        if not self.off.shared_prefix:
            self._form = take_packs(base, settings.attention)
        self._keeps_step = gathers_parameters(trainer)
        self._share_tower(base)
        self._vision = {mode: self._new_vision() for mode in (True, False)}

    def _share_tower(self, base: nn.Module) -> None:
        """Keep the vision tower, which is the same in policy and reference, in memory once."""
        trainer = self.trainer
        synced = trainer.args.sync_ref_model  # mixes the policy into the reference, in place
        if self.off.vision_once or self._keeps_step or synced or trainer.ref_model is None:
            return
        assert self._facts is not None
        theirs = base_model(trainer, trainer.ref_model)
        for ours, other in zip(*(frozen_modules(one, self._facts) for one in (base, theirs)), strict=True):
            share_weights(ours, other)

    def turn_off(self, off: Off) -> None:
        """Take over what is off, and say so once."""
        self.off = off
        self.tell(str(off))

    def tell(self, message: str) -> None:
        """Log a message, once."""
        if message not in self._told and self.trainer.accelerator.is_main_process:
            logger.info(f"swift-grpo-ext: {message}")
        self._told.add(message)

    @property
    def vision(self) -> VisionOnce | None:
        """Features of the current kind of generation batch; evaluation does not disturb training's."""
        return self._vision[self.trainer.model.training]

    def start_generation_batch(self) -> None:
        """Let go of the features of the generation batch before; those of training outlive an evaluation."""
        modes = (True, False) if self.trainer.model.training else (False,)
        for vision in filter(None, map(self._vision.get, modes)):
            vision.cache.clear()

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """While this is open, the model samples with each prompt, and each image, computed once."""
        base = base_model(self.trainer, self.trainer.model)
        with self._in_step(base), self._each_prompt_once(base):
            yield

    def _in_step(self, base: Any) -> AbstractContextManager[None]:
        template, facts = self.trainer.template, self._facts
        if not gathers_in_sampling(self.trainer):
            return nullcontext()
        if facts is None or not isinstance(template, VisionTemplate):
            return in_step(base, lambda calls: calls, lambda: None)
        device = self.trainer.accelerator.device
        return in_step(base, lambda calls: agreed_max(calls, device), blank_encoder(base, template, facts))

    @contextmanager
    def _each_prompt_once(self, base: Any) -> Iterator[None]:
        if self.off.shared_prefill:
            yield
            return
        vision = None if self.off.vision_once or self._keeps_step else self.vision

        def encoding(images: Images, which: Sequence[int]) -> AbstractContextManager[None]:
            return vision.standing_in(base, [(images, which)]) if vision else nullcontext()

        image_token = self._facts.image_token_id if self._facts else None
        with shared_prefill(base, image_token, encoding, self.tell):
            yield

    def takes(self, model: nn.Module) -> bool:
        """True for the policy and the reference; a teacher is another model."""
        unwrap = self.trainer.accelerator.unwrap_model
        ours = [one for one in (self.trainer.model, self.trainer.ref_model) if one is not None]
        return any(unwrap(model) is unwrap(one) for one in ours)

    def look_at(self, model_inputs: dict[str, Any], grpo_batch: Any) -> MicroBatch:
        """What is known of a micro-batch; found out at its first pass."""
        batch: MicroBatch | None = getattr(grpo_batch, "swift_grpo_ext", None)
        if batch is None or batch.inputs is not model_inputs:
            restore_pixels(model_inputs, grpo_batch)
            form = None if self.off.shared_prefix else self._form
            batch = look_at(model_inputs, grpo_batch.completion_mask, self._facts, form)
            grpo_batch.swift_grpo_ext = batch
            if batch.reason:
                self.tell(f"a micro-batch went the stock way: {batch.reason}")
        return batch

    def scores(self, model: nn.Module, batch: MicroBatch, with_entropy: bool) -> Tensor:
        """Log-probs and entropies of the completions, ``(batch, keep, 2)``, 0 where there is no loss."""
        base = base_model(self.trainer, model)
        vision = None if self.off.vision_once else self.vision
        encoded = vision is not None and batch.media is not None
        inputs = batch.forward_inputs(encoded)
        keep = batch.completion_mask.shape[1]
        if "logits_to_keep" not in self.trainer.model_kwarg_keys:
            inputs.pop("logits_to_keep", None)
        elif not batch.pack:
            inputs["logits_to_keep"] = keep + 1
        options = self._options(base, with_entropy)
        spare = not self.off.spare_recompute
        sparingly = sparing(base.get_decoder(), batch.pack, spare) if batch.pack else nullcontext()
        with vision.standing_in(base, batch.wanted()) if vision else nullcontext(), sparingly:
            head = base.get_output_embeddings()
            if batch.pack:
                query = pack_query(batch.inputs["input_ids"], batch.pack, **options)
                scores = packed_scores(model, head, inputs, batch.pack, query)
            else:
                scores = row_scores(model, head, inputs, batch.completion_mask, **options)
        if encoded and not self.trainer.use_liger_loss:  # whose policy pass is its own, and takes pixels
            batch.offload_pixels()
        return scores

    def check(self, model: nn.Module, batch: MicroBatch, stock: Callable[..., Any]) -> None:
        """Compare the first rows of a micro-batch with the stock path; on a mismatch, use that henceforth.

        Args:
            model: The model as the trainer calls it.
            batch: The micro-batch.
            stock: The host's ``_get_per_token_logps_and_entropies_single``.
        """
        self.checked = True
        keep = batch.completion_mask.shape[1]
        rows = range(min(len(batch.completion_mask), _CHECKED_ROWS))
        with torch.no_grad(), without_dropout(model):
            ours = self.scores(model, batch, with_entropy=False)[: len(rows), :, 0]
            region = SimpleNamespace(logits_to_keep=keep)
            if batch.media is None:  # no row can be taken out with its pixels
                theirs = stock(model, dict(batch.inputs), region)[0][: len(rows)]
            else:
                theirs = torch.cat([stock(model, batch.row_inputs(row), region)[0] for row in rows])
        mask = batch.completion_mask[: len(rows)]
        problem = mismatch(ours, theirs, mask, base_model(self.trainer, model).dtype)
        if agreed_max(int(bool(problem)), self.trainer.accelerator.device):
            logger.warning(f"swift-grpo-ext: self-check failed: {problem or 'on another rank'}")
            self.turn_off(self.off.without_forward("self-check failed"))

    def _options(self, base: Any, with_entropy: bool) -> dict[str, Any]:
        chunk = _LOGITS_CHUNK
        return {
            "vocab_size": base.config.get_text_config().vocab_size,
            "temperature": self.trainer.temperature,
            "with_entropy": with_entropy,
            "chunk_bytes": _ONE_CHUNK if self.off.chunked_logps else chunk,
        }

    def _new_vision(self) -> VisionOnce | None:
        if self._facts is None:
            return None
        device = self.trainer.accelerator.device
        agree = (lambda number: agreed_max(number, device)) if self._keeps_step else (lambda number: number)
        return VisionOnce(self._facts, self.settings.vision_cache_mib * 2**20, agree)


def restore_pixels(inputs: dict[str, Any], grpo_batch: Any) -> None:
    """Give the inputs of a micro-batch back what left the device, if anything did."""
    batch: MicroBatch | None = getattr(grpo_batch, "swift_grpo_ext", None)
    if batch is not None:
        batch.restore_pixels(inputs)
