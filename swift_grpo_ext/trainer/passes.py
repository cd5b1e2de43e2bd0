"""The passes over a generation batch: old, reference and policy log-probs, each by the shortest way."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import signature
from typing import Any

import torch
from swift.rl_core.data import GRPOBatch
from swift.utils import get_logger
from torch import Tensor, nn

from swift_grpo_ext.group.forward import pack_query, packed_scores, row_scores
from swift_grpo_ext.group.interface import take_packs
from swift_grpo_ext.group.logps import CHUNK_BYTES
from swift_grpo_ext.group.micro_batch import MicroBatch, analyse, in_parts, narrowed
from swift_grpo_ext.group.recompute import sparing
from swift_grpo_ext.group.self_check import forward_dtype
from swift_grpo_ext.group.shared_prefix import CannotPackError
from swift_grpo_ext.group.silent import filled, summed
from swift_grpo_ext.group.vision_once import VisionOnce
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.batches import Batches, Known, PassWork, tokens_heard
from swift_grpo_ext.trainer.distributed import agreed_max, gathers_parameters
from swift_grpo_ext.trainer.features import Enabled, decide, frozen_modules, share_tower
from swift_grpo_ext.trainer.gains import tell_gains
from swift_grpo_ext.trainer.host import Host, base_model
from swift_grpo_ext.trainer.old_pass import OldPass
from swift_grpo_ext.trainer.out_of_memory import Halves
from swift_grpo_ext.trainer.pass_check import compare, compare_passes, encodes_one_by_one, tried
from swift_grpo_ext.trainer.sampling import sampled_once

logger = get_logger()
_ONE_CHUNK = 2**62  # bytes
Scores = tuple[Tensor, Tensor | None]


class Passes:
    """Answers the trainer's questions for log-probs; ``cut`` says how micro-batches were cut."""

    def __init__(self, host: Host, settings: Settings, cut: str = "") -> None:
        self._host, self._settings, self._cut = host, settings, cut
        self._trusted: set[tuple[bool, bool]] = set()  # kinds of passes: of the reference, with gradients
        if settings.disables("trainer.self_check"):
            self._trusted = {(one, other) for one in (True, False) for other in (True, False)}
        self.halves = Halves(host)  # in how many parts a micro-batch is computed
        self._told: set[str] = set()
        self.work = PassWork(host)
        self.batches = Batches()  # what is known of each micro-batch
        base = base_model(host, host.model)
        self._family = family_of(base.config) if host.is_multimodal else None
        self._turn_to(decide(host, settings))
        self.old = OldPass(host, self.enabled.skip_old)  # which micro-batches have an old pass
        if self.enabled.shared_prefix:
            self._form = take_packs(base, settings.attention, getattr(self._family, "image_blocks", "none"))
        self._keeps_step = gathers_parameters(host)
        if self.enabled.vision_once and not self._keeps_step:
            share_tower(host, self._family)
        self._vision = {mode: self._new_vision() for mode in (True, False)}

    def _turn_to(self, enabled: Enabled) -> None:
        self.enabled = enabled  # what is on, and why the rest is not
        tell_gains(self._host, enabled, self._cut, self.tell)

    def tell(self, message: str) -> None:
        """Log a message, once."""
        if message not in self._told and self._host.accelerator.is_main_process:
            logger.info(f"swift-grpo-ext: {message}")
        self._told.add(message)

    @property
    def vision(self) -> VisionOnce | None:
        """Features of the current kind of generation batch; evaluation does not disturb training's."""
        return self._vision[self._host.model.training]

    def start_generation_batch(self) -> None:
        """Let go of the features of the generation batch before; those of training outlive an evaluation."""
        modes = (True, False) if self._host.model.training else (False,)
        for vision in filter(None, map(self._vision.get, modes)):
            vision.cache.clear()

    def sampling(self) -> AbstractContextManager[None]:
        """While this is open, the model samples with each prompt, and each image, computed once."""
        if self._host.args.use_vllm:  # maybe in another thread, while the model trains
            return nullcontext()
        base = base_model(self._host, self._host.model)
        vision = self.vision if self.enabled.vision_once and not self._keeps_step else None
        return sampled_once(self._host, base, self._family, vision, self.enabled.shared_prefill, self.tell)

    def phase_of(self, model: nn.Module, grpo_batch: GRPOBatch) -> str:
        """What a pass is for, as in `watch.phases`."""
        return self.batches.phase_of(grpo_batch, lambda: self._handles(model))

    def stored(self, batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Prepared micro-batches, with the pixels of those that have been encoded in the main memory."""
        for batch in batches if self.enabled.vision_once else ():
            known = self.batches.of(batch["grpo_batch"]).batch
            if known is not None and known.media:
                batch["model_inputs"] = known.store_pixels()
        return batches

    def logps(
        self,
        model: nn.Module,
        model_inputs: Mapping[str, Tensor],
        grpo_batch: GRPOBatch,
        with_entropy: bool,
        stock: Callable[..., Any],
    ) -> Scores:
        """Log-probs of a micro-batch's completions ``(batch, keep)``, and entropies if they are asked for.

        Policy, reference or teacher; ``stock`` is ms-swift's ``_get_per_token_logps_and_entropies_single``.
        """
        stock_pass: Callable[[], Scores] = partial(
            stock, model, model_inputs, grpo_batch, compute_entropy=with_entropy
        )
        if not self._handles(model) or self.enabled.stock_forward:
            return stock_pass()
        batch = self._analysed(model_inputs, grpo_batch)
        forward = partial(self._forward, model, batch, grpo_batch, with_entropy)
        of_reference = self._is_reference(model)
        plain = self._host.ref_model if of_reference else self._host.model
        dtype = forward_dtype(base_model(self._host, model).dtype, self._host.accelerator.mixed_precision)
        ours = partial(self._scores, plain, batch, False)
        check: Callable[[], str] = partial(compare, plain, batch, ours, stock, dtype)
        if not (self.enabled.shared_prefix or self.enabled.chunked_logps):
            forward = partial(self._with_features, model, batch, stock_pass)
            check = partial(compare_passes, plain, forward, stock_pass, batch.completion_mask, dtype)
        kind = (of_reference, torch.is_grad_enabled())
        if kind in self._trusted:
            return forward()
        self._trusted.add(kind)
        if self._keeps_step and self._family and (self.enabled.shared_prefix or self.enabled.vision_once):
            tower, equal = frozen_modules(base_model(self._host, model), self._family), check
            check = lambda: encodes_one_by_one(plain, batch, tower, stock) or equal()  # noqa: E731
        found, problem = tried(self._host, self._keeps_step, check, forward, self.halves.halve)
        if found is not None:
            return found
        logger.warning(f"swift-grpo-ext: self-check failed: {problem or 'on another rank'}")
        self._turn_to(self.enabled.without_forward("self-check failed"))
        return stock_pass()

    def _with_features(self, model: nn.Module, batch: MicroBatch, stock_pass: Callable[[], Scores]) -> Scores:
        assert self.vision is not None
        with self.vision.standing_in(base_model(self._host, model), batch.wanted()):
            return stock_pass()

    def _forward(
        self, model: nn.Module, batch: MicroBatch, grpo_batch: GRPOBatch, with_entropy: bool
    ) -> Scores:
        """Log-probs, and entropies if they are asked for, of the completions that are not silent."""
        known = self.batches.of(grpo_batch)
        part = self._heard(batch, grpo_batch, known)
        self.work.add(known, batch, part or batch, self.vision if self.enabled.vision_once else None)
        scores = self._scores(model, part or batch, with_entropy)
        if known.forwarded is None:
            return scores[..., 0], scores[..., 1] if with_entropy else None
        logps, entropies = filled(scores, known.forwarded, grpo_batch.old_per_token_logps)
        return logps, entropies if with_entropy else None

    def _heard(self, batch: MicroBatch, grpo_batch: GRPOBatch, known: Known) -> MicroBatch | None:
        """The micro-batch without its silent completions; None where all are needed."""
        known.forwarded = None
        tokens = tokens_heard(self._host, grpo_batch) if self.enabled.skip_silent else None
        if tokens is None or batch.reason:
            return None
        try:
            part = narrowed(batch, tokens)
        except CannotPackError as problem:
            self.tell(f"completions without an advantage were forwarded: {problem}")
            return None
        known.forwarded = tokens
        return part

    def _handles(self, model: nn.Module) -> bool:
        """True for the policy and the reference; a teacher is another model."""
        unwrap = self._host.accelerator.unwrap_model
        return self._is_reference(model) or unwrap(model) is unwrap(self._host.model)

    def _is_reference(self, model: nn.Module) -> bool:
        unwrap, reference = self._host.accelerator.unwrap_model, self._host.ref_model
        return reference is not None and unwrap(model) is unwrap(reference)

    def _analysed(self, model_inputs: Mapping[str, Tensor], grpo_batch: GRPOBatch) -> MicroBatch:
        """What is known of a micro-batch; found out at its first pass."""
        known = self.batches.of(grpo_batch)
        if known.batch is None or known.batch.given["input_ids"] is not model_inputs["input_ids"]:
            form = self._form if self.enabled.shared_prefix else None
            mask = grpo_batch.completion_mask
            known.batch = analyse(model_inputs, mask, self._family, form, known.prompts)
            if known.batch.reason:
                self.tell(f"a micro-batch went the stock way: {known.batch.reason}")
        return known.batch

    def _scores(self, model: nn.Module, batch: MicroBatch, with_entropy: bool) -> Tensor:
        """Log-probs and entropies of the completions, ``(batch, keep, 2)``, 0 where there is no loss."""
        if self.halves.parts == 1 or not self.enabled.shared_prefix:
            return self._scores_at_once(model, batch, with_entropy)
        parts = in_parts(batch, self.halves.parts)
        return summed([partial(self._scores_at_once, model, part, with_entropy) for part in parts])

    def _scores_at_once(self, model: nn.Module, batch: MicroBatch, with_entropy: bool) -> Tensor:
        base = base_model(self._host, model)
        vision = self.vision if self.enabled.vision_once else None
        inputs = batch.forward_inputs(encoded=vision is not None and batch.media is not None)
        # Of the forward as it is now: liger puts one without it in the place of the one that ms-swift read.
        if "logits_to_keep" not in signature(base.forward).parameters:
            inputs.pop("logits_to_keep", None)
        options = {
            "vocab_size": base.config.get_text_config().vocab_size,
            "temperature": self._host.temperature,
            "with_entropy": with_entropy,
            "chunk_bytes": CHUNK_BYTES if self.enabled.chunked_logps else _ONE_CHUNK,
        }
        spare = self.enabled.spare_recompute
        sparingly = sparing(base.get_decoder(), batch.pack, spare) if batch.pack else nullcontext()
        with vision.standing_in(base, batch.wanted()) if vision else nullcontext(), sparingly:
            head = base.get_output_embeddings()
            if batch.pack:
                query = pack_query(batch.inputs["input_ids"], batch.pack, **options)
                return packed_scores(model, head, inputs, batch.pack, query)
            return row_scores(model, head, inputs, batch.completion_mask, **options)

    def _new_vision(self) -> VisionOnce | None:
        device, alone = self._host.accelerator.device, not self._keeps_step
        agree: Callable[[int], int] = lambda number: number if alone else agreed_max(number, device)  # noqa: E731
        room = self._settings.vision_cache_mib * 2**20
        return VisionOnce(self._family, room, agree) if self._family else None
