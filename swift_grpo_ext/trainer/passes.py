"""The passes over a generation batch: which pass it is, what is on for it, and where features are kept."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from swift_grpo_ext.features import Features
from swift_grpo_ext.group.cut import BatchSizes
from swift_grpo_ext.group.interface import take_packs
from swift_grpo_ext.group.media import GRIDS_OF
from swift_grpo_ext.group.micro_batch import MicroBatch, analyse, in_parts
from swift_grpo_ext.group.self_check import forward_dtype
from swift_grpo_ext.group.vision_once import VISION_BYTES, VisionOnce
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.ms_swift.shared import GRPOBatch
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.batches import BatchRecords, PassWork, forwarded_tokens
from swift_grpo_ext.trainer.distributed import agreed_max, gathers_parameters
from swift_grpo_ext.trainer.features import decide, frozen_modules, share_tower
from swift_grpo_ext.trainer.first_pass import Attempt, FirstPasses
from swift_grpo_ext.trainer.gains import tell_gains
from swift_grpo_ext.trainer.host import Host, base_model, once_of_run, unwrapped
from swift_grpo_ext.trainer.inference import mode_kept
from swift_grpo_ext.trainer.old_pass import OldPass
from swift_grpo_ext.trainer.one_pass import OnePass, PassRecord, Request
from swift_grpo_ext.trainer.out_of_memory import Halves
from swift_grpo_ext.trainer.samples import Inputs, Scores
from swift_grpo_ext.trainer.sampling import sampled_once
from swift_grpo_ext.trainer.stock_rows import encodes_one_by_one, why_wrong
from swift_grpo_ext.trainer.tower import RunTower

_CHUNKS = 2**30  # instead of a number of packs; more than there can be


class PassKind(NamedTuple):
    """Properties in which two passes may differ that are otherwise computed alike."""

    of_reference: bool
    with_gradients: bool


class Asked(NamedTuple):
    """ms-swift's request for log-probs, and its own ways to compute them."""

    model: nn.Module
    model_inputs: Inputs
    grpo_batch: GRPOBatch
    with_entropy: bool
    stock: Callable[..., Scores]
    in_step: Callable[..., Scores]  # the same, every rank with as many calls of the tower

    def by(self, stock: Callable[..., Scores]) -> Scores:
        """ms-swift's own answer, by one of these ways."""
        return stock(self.model, self.model_inputs, self.grpo_batch, compute_entropy=self.with_entropy)


class Passes:
    """Answers the trainer's questions for log-probs; ``cut`` says how micro-batches were cut."""

    def __init__(self, host: Host, settings: Settings, cut: str = "") -> None:
        self._host = host
        self._cut = cut
        self._say = once_of_run(host)
        self._tells_rows = True  # how a server's first rows of several turns are computed
        self.halves = Halves(host)  # number of parts in which a micro-batch is computed
        self.work = PassWork(host)
        self.batches = BatchRecords()  # what is known of each micro-batch
        base = base_model(host, host.model)
        self._family = family_of(base.config) if host.is_multimodal else None
        self._tower = RunTower(host, self._family) if self._family else None
        # None: the tower is called as often as ms-swift calls it.
        self._calls = None
        if self._tower and not settings.disables("trainer.vision_once"):
            self._calls = self._tower.calls
        self._turn_to(decide(host, settings))
        self.old = OldPass(host, "skip_old_logps" in self.features)  # which micro-batches have an old pass
        if "shared_prefix" in self.features:
            self._form = take_packs(base, getattr(self._family, "image_blocks", "none"))
        self._keeps_step = gathers_parameters(host)
        self._first_passes = FirstPasses(
            host.accelerator.device,
            on="self_check" in self.features,
            waits=self._keeps_step,
            halve=self.halves.halve,
        )
        if "vision_once" in self.features and not self._keeps_step:
            share_tower(host, self._family)
        self._vision: dict[bool, VisionOnce] = {}  # features of training's images, and of evaluation's
        if self._tower and self._family:
            for training in (True, False):
                self._vision[training] = VisionOnce(
                    self._family, VISION_BYTES, self._tower.agree, self._tower.blank
                )

    def _turn_to(self, features: Features) -> None:
        args = self._host.args
        self.features = features  # what is on, and why the rest is not
        sizes = BatchSizes(
            args.per_device_train_batch_size, args.gradient_accumulation_steps, args.steps_per_generation
        )
        tell = partial(tell_gains, self._host, features, sizes, self._cut, self._say)
        self._host.guard.run("gains.json", tell)

    # Of a generation batch.

    def start_generation_batch(self) -> None:
        """Drop the features of the previous generation batch; those of training outlive an evaluation."""
        for training, vision in self._vision.items():
            if self._host.model.training or not training:
                vision.cache.clear()

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """While this is open, the model samples with each prompt, and each image, computed once."""
        if self._host.args.use_vllm:  # maybe in another thread, while the model trains
            yield
            return
        base = base_model(self._host, self._host.model)
        vision = None if self._keeps_step else self._vision_of(self.features)
        blank = self._tower.blank if self._tower else None
        shared = "shared_prefill" in self.features
        once = sampled_once(self._host, base, self._family, vision, blank, shared, self._say)
        with mode_kept(self._host.model), once:
            yield

    def stored(self, batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Prepared micro-batches, with each distinct image once, and in the main memory."""
        for batch in () if self.features.stock_forward else batches:
            analysed = self._analysed(batch["model_inputs"], batch["grpo_batch"], self.features)
            if analysed.media:
                batch["model_inputs"] = analysed.store_pixels()
        return batches

    # Of a pass.

    def phase_of(self, model: nn.Module, grpo_batch: GRPOBatch) -> str:
        """Phase of a pass, as in `watch.phases`."""
        return self.batches.phase_of(grpo_batch, self._handles(model))

    def in_packs(
        self, model: nn.Module, model_inputs: Inputs, grpo_batch: GRPOBatch
    ) -> AbstractContextManager[None]:
        """While this is open, a server's many rows are packs, each of at most the tokens of one chunk.

        Where a scheduler returns several rows for a request, ms-swift cuts micro-batches into chunks of the
        usual number of rows, through trajectories, and encodes their images again for each pass. Packs are
        cut where neighbours share least. Every rank comes here.
        """
        host = self._host
        shares = "shared_prefix" in self.features
        if not (host.dynamic_num_samples and shares and self._handles(model)):
            return nullcontext()
        record = self.batches.of(grpo_batch)
        if record.packs is None:
            record.packs = self._packs_of(self._analysed(model_inputs, grpo_batch, self.features))
        return swapped(host, "dynamic_num_samples", False) if record.packs else nullcontext()

    def _packs_of(self, batch: MicroBatch) -> int:
        """Number of packs of a micro-batch, the same on every rank; 0 if one of them cannot pack."""
        args = self._host.args
        training = self._host.model.training
        width = batch.inputs["input_ids"].shape[1]
        size = args.per_device_train_batch_size if training else args.per_device_eval_batch_size
        parts = parts_within(batch, most=size * width)
        number = agreed_max(len(parts) or _CHUNKS, self._host.accelerator.device)
        if self._tells_rows:
            self._tells_rows = False
            self._say(f"multi-turn rows: {_way_of(batch, parts, number, size)}")
        return 0 if number == _CHUNKS else number

    def logps(
        self,
        model: nn.Module,
        model_inputs: Inputs,
        grpo_batch: GRPOBatch,
        with_entropy: bool,
        stock: Callable[..., Scores],
    ) -> Scores:
        """Log-probs of a micro-batch's completions, and entropies if they are asked for.

        Policy, reference or teacher; ``stock`` is ms-swift's ``_get_per_token_logps_and_entropies_single``.
        """
        asked = Asked(model, model_inputs, grpo_batch, with_entropy, stock, self._in_step(stock))
        if not self._handles(model):
            return asked.by(stock)
        if self.features.stock_forward:
            return asked.by(asked.in_step)
        kind = PassKind(of_reference=self._is_reference(model), with_gradients=torch.is_grad_enabled())
        if not self._first_passes.is_due(kind):
            return self._noted(asked, self._run(asked, self.features))
        attempt = partial(self._attempt, kind, asked)
        made, features = self._first_passes.run(kind, self.features, attempt)
        if features != self.features:
            self._turn_to(features)
        return asked.by(asked.in_step) if made is None else self._noted(asked, made)

    def _run(self, asked: Asked, features: Features) -> PassRecord:
        return self._one_pass(features).run(self._request(asked, features))

    def _one_pass(self, features: Features) -> OnePass:
        return OnePass(features, self._calls, recomputes=self.halves.parts > 1)

    def _request(self, asked: Asked, features: Features) -> Request:
        """Request of a pass, with the analysis of its micro-batch and the tokens of it that are needed."""
        host = self._host
        grpo_batch = asked.grpo_batch
        shares = "shared_prefix" in features
        batch = self._analysed(asked.model_inputs, grpo_batch, features)
        leaves_out = "skip_zero_advantage" in features and not batch.reason
        return Request(
            asked.model,
            base_model(host, asked.model),
            batch,
            asked.with_entropy,
            host.temperature,
            self._vision_of(features),
            tokens=forwarded_tokens(host, grpo_batch) if leaves_out else None,
            others=grpo_batch.old_per_token_logps,
            parts=(self.batches.of(grpo_batch).packs or 1) * self.halves.parts if shares else 1,
            stock=lambda: asked.by(asked.stock),
        )

    def _noted(self, asked: Asked, made: PassRecord) -> Scores:
        """Scores of a finished pass; its work is recorded."""
        record = self.batches.of(asked.grpo_batch)
        record.forwarded = made.tokens
        if made.note:
            self._say(made.note)
        self.work.add(record, made.forwarded)
        return made.logps, made.entropies

    def _attempt(self, kind: PassKind, asked: Asked, features: Features) -> Attempt[PassRecord]:
        """A pass whose scores are yet to be compared with ms-swift's, each time in as many parts as fit."""
        host = self._host
        plain = host.ref_model if kind.of_reference else host.model  # no hooks of wrappers
        assert plain is not None
        shares = "shared_prefix" in features or "vision_once" in features

        def check() -> str:
            request = self._request(asked, features)
            if self._keeps_step and self._family and shares:
                tower = frozen_modules(request.base, self._family)
                if problem := encodes_one_by_one(plain, request.batch, tower, asked.in_step):
                    return problem
            dtype = forward_dtype(request.base.dtype, host.accelerator.mixed_precision)
            in_step = partial(asked.by, asked.in_step)
            return why_wrong(self._one_pass(features), request, plain, asked.in_step, in_step, dtype)

        compares = bool(asked.grpo_batch.completion_mask.any())
        return Attempt(check, lambda: self._run(asked, features), compares)

    def _handles(self, model: nn.Module) -> bool:
        """True for the policy and the reference; a teacher is another model."""
        return self._is_reference(model) or unwrapped(model) is unwrapped(self._host.model)

    def _is_reference(self, model: nn.Module) -> bool:
        reference = self._host.ref_model
        return reference is not None and unwrapped(model) is unwrapped(reference)

    def _analysed(self, model_inputs: Inputs, grpo_batch: GRPOBatch, features: Features) -> MicroBatch:
        """Images and groups of a micro-batch, analysed once."""
        form = self._form if "shared_prefix" in features else None
        record = self.batches.of(grpo_batch)
        known = record.batch
        ids = model_inputs["input_ids"]
        if known is None or known.given["input_ids"] is not ids or known.form is not form:
            known = record.batch = analyse(model_inputs, grpo_batch.completion_mask, self._family, form)
            if known.reason:
                self._say(f"micro-batch not packed ({known.reason}): stock forward used")
        return known

    # Features of images.

    def _vision_of(self, features: Features) -> VisionOnce | None:
        """Those of the current kind of generation batch, training or evaluation; None if not kept."""
        return self._vision[self._host.model.training] if "vision_once" in features else None

    def _in_step(self, stock: Callable[..., Scores]) -> Callable[..., Scores]:
        """ms-swift's own pass, with as many tower calls as other ranks make in theirs."""

        def stock_in_step(model: nn.Module, inputs: Inputs, *args: Any, **kwargs: Any) -> Scores:
            with self.in_step(model, inputs):
                return stock(model, inputs, *args, **kwargs)

        return stock_in_step

    def in_step(self, model: nn.Module, inputs: Inputs) -> AbstractContextManager[None]:
        """While this is open, one forward is made over inputs: no tower for text alone, ranks in step."""
        if self._calls is None:
            return nullcontext()
        media = sum(inputs.get(pixels) is not None for pixels in GRIDS_OF)
        return self._calls.over(base_model(self._host, model), media)

    def end_micro_batch(self) -> None:
        """A micro-batch has its gradients."""
        if self._tower:
            self._tower.end_micro_batch()


def _way_of(batch: MicroBatch, parts: list[MicroBatch], number: int, size: int) -> str:
    """The computation of so many rows, in words."""
    if number == _CHUNKS:
        return f"not packed (one rank could not); running chunks of {size} rows"
    tokens = int(batch.inputs["attention_mask"].sum())
    left = sum(part.pack.layout.length for part in parts if part.pack)
    rows = len(batch.completion_mask)
    return f"{rows} rows of {tokens} tokens are {number} pack{'s' * (number > 1)} of {left} in all"


def parts_within(batch: MicroBatch, most: int) -> list[MicroBatch]:
    """Fewest packs of a micro-batch, each of at most so many tokens; a longer row is a pack by itself.

    Empty if it cannot be packed.
    """
    if batch.reason or batch.form is None:
        return []
    rows = max(1, int(batch.completion_mask.bool().any(1).sum()))
    parts: list[MicroBatch] = []
    for number in range(1, rows + 1):
        parts = in_parts(batch, number)
        lengths = [part.pack.layout.length for part in parts if part.pack]
        if len(lengths) < number:
            return []
        if max(lengths) <= most:
            break
    return parts
