"""The passes over a generation batch: which pass it is, what is on for it, and where features are kept."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn

from swift_grpo_ext.group.interface import take_packs
from swift_grpo_ext.group.media import GRIDS_OF
from swift_grpo_ext.group.micro_batch import MicroBatch, analyse, in_parts
from swift_grpo_ext.group.vision_once import VISION_BYTES, VisionOnce
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.ms_swift.shared import GRPOBatch, get_logger
from swift_grpo_ext.parts import Enabled
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.batches import BatchRecords, PassWork
from swift_grpo_ext.trainer.distributed import agreed_max, gathers_parameters
from swift_grpo_ext.trainer.features import decide, share_tower
from swift_grpo_ext.trainer.gains import tell_gains
from swift_grpo_ext.trainer.host import Host, base_model, once_of_run, unwrapped
from swift_grpo_ext.trainer.inference import mode_kept
from swift_grpo_ext.trainer.old_pass import OldPass
from swift_grpo_ext.trainer.one_pass import OnePass, Request
from swift_grpo_ext.trainer.out_of_memory import Halves
from swift_grpo_ext.trainer.pass_check import PassKind, SelfCheck
from swift_grpo_ext.trainer.samples import Inputs, Scores
from swift_grpo_ext.trainer.sampling import sampled_once
from swift_grpo_ext.trainer.tower import RunTower

logger = get_logger()
_CHUNKS = 2**30  # in the place of a number of packs: more than there can be


class Passes:
    """Answers the trainer's questions for log-probs; ``cut`` says how micro-batches were cut."""

    def __init__(self, host: Host, settings: Settings, cut: str = "") -> None:
        self._host = host
        self._cut = cut
        self._say = once_of_run(host)
        self._tells_rows = True  # how a server's first rows of several turns are computed
        self.halves = Halves(host)  # in how many parts a micro-batch is computed
        self.work = PassWork(host)
        self.batches = BatchRecords()  # what is known of each micro-batch
        base = base_model(host, host.model)
        self._family = family_of(base.config) if host.is_multimodal else None
        self._leaves_tower = settings.disables("trainer.vision_once")  # as often as ms-swift calls it
        self._tower = RunTower(host, self._family) if self._family else None
        self._turn_to(decide(host, settings))
        self.old = OldPass(host, self.enabled.skip_old_logps)  # which micro-batches have an old pass
        if self.enabled.shared_prefix:
            self._form = take_packs(base, settings.attention, getattr(self._family, "image_blocks", "none"))
        self._keeps_step = gathers_parameters(host)
        checks = not settings.disables("trainer.self_check")
        self._self_check = SelfCheck(host, self._family, self.halves, self._keeps_step, on=checks)
        if self.enabled.vision_once and not self._keeps_step:
            share_tower(host, self._family)
        self._vision = {training: self._new_vision() for training in (True, False)}

    def _turn_to(self, enabled: Enabled) -> None:
        self.enabled = enabled  # what is on, and why the rest is not
        tower = self._tower.calls if self._tower and not self._leaves_tower else None
        self._one_pass = OnePass(self._host, enabled, self.halves, self.work, tower, self._say)
        self._host.guard.run("gains.json", partial(tell_gains, self._host, enabled, self._cut, self._say))

    # Of a generation batch.

    def start_generation_batch(self) -> None:
        """Let go of the features of the generation batch before; those of training outlive an evaluation."""
        modes = (True, False) if self._host.model.training else (False,)
        for vision in filter(None, map(self._vision.get, modes)):
            vision.cache.clear()

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """While this is open, the model samples with each prompt, and each image, computed once."""
        if self._host.args.use_vllm:  # maybe in another thread, while the model trains
            yield
            return
        base = base_model(self._host, self._host.model)
        vision = None if self._keeps_step else self.vision
        blank = self._tower.blank if self._tower else None
        shared = self.enabled.shared_prefill
        once = sampled_once(self._host, base, self._family, vision, blank, shared, self._say)
        with mode_kept(self._host.model), once:
            yield

    def stored(self, batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Prepared micro-batches, with the pixels of those that have been encoded in the main memory."""
        for batch in batches if self.enabled.vision_once else ():
            analysed = self.batches.of(batch["grpo_batch"]).batch
            if analysed is not None and analysed.media:
                batch["model_inputs"] = analysed.store_pixels()
        return batches

    # Of a pass.

    def phase_of(self, model: nn.Module, grpo_batch: GRPOBatch) -> str:
        """What a pass is for, as in `watch.phases`."""
        return self.batches.phase_of(grpo_batch, lambda: self._handles(model))

    def in_packs(
        self, model: nn.Module, model_inputs: Inputs, grpo_batch: GRPOBatch
    ) -> AbstractContextManager[None]:
        """While this is open, a server's many rows are packs, each of at most the tokens of one chunk.

        Where a scheduler returns several rows for a request, ms-swift cuts micro-batches into chunks of the
        usual number of rows, through trajectories, and encodes their images again for each pass. Packs are
        cut where neighbours share least. Every rank comes here.
        """
        host = self._host
        if not (host.dynamic_num_samples and self.enabled.shared_prefix and self._handles(model)):
            return nullcontext()
        record = self.batches.of(grpo_batch)
        if record.packs is None:
            record.packs = self._packs_of(self._analysed(model_inputs, grpo_batch))
        return swapped(host, "dynamic_num_samples", False) if record.packs else nullcontext()

    def _packs_of(self, batch: MicroBatch) -> int:
        """Into how many packs a micro-batch is cut, as many on every rank; 0 if one of them cannot pack."""
        args = self._host.args
        training = self._host.model.training
        rows, width = batch.inputs["input_ids"].shape
        size = args.per_device_train_batch_size if training else args.per_device_eval_batch_size
        parts = parts_within(batch, most=size * width)
        number = agreed_max(len(parts) or _CHUNKS, self._host.accelerator.device)
        if self._tells_rows:
            self._tells_rows = False
            given = int(batch.inputs["attention_mask"].sum())
            tokens = sum(part.pack.layout.length for part in parts if part.pack)
            way = f"{number} pack{'s' * (number > 1)} of {tokens} in all"
            if number == _CHUNKS:
                way = f"chunks of {size} rows, for they cannot be packed on every rank"
            self._say(f"rows of several turns: {rows} rows of {given} tokens are {way}")
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

        def by(stock: Callable[..., Scores]) -> Callable[[], Scores]:
            return lambda: stock(model, model_inputs, grpo_batch, compute_entropy=with_entropy)

        if not self._handles(model):
            return by(stock)()
        in_step = self._in_step(stock)
        by_stock = by(in_step)
        if self.enabled.stock_forward:
            return by_stock()
        batch = self._analysed(model_inputs, grpo_batch)
        record = self.batches.of(grpo_batch)
        request = Request(
            model, batch, grpo_batch, record, with_entropy, self.vision, by(stock), by_stock, in_step
        )
        kind = PassKind(of_reference=self._is_reference(model), with_gradients=torch.is_grad_enabled())
        if not self._self_check.is_due(kind):
            return self._one_pass.run(request)
        scores, problem = self._self_check.first(kind, request, self._one_pass)
        if scores is not None:
            return scores
        logger.warning(f"swift-grpo-ext: self-check failed: {problem or 'on another rank'}")
        self._turn_to(self.enabled.without_forward("self-check failed"))
        return by_stock()

    def _handles(self, model: nn.Module) -> bool:
        """True for the policy and the reference; a teacher is another model."""
        return self._is_reference(model) or unwrapped(model) is unwrapped(self._host.model)

    def _is_reference(self, model: nn.Module) -> bool:
        reference = self._host.ref_model
        return reference is not None and unwrapped(model) is unwrapped(reference)

    def _analysed(self, model_inputs: Inputs, grpo_batch: GRPOBatch) -> MicroBatch:
        """Images and groups of a micro-batch; found out at its first pass."""
        record = self.batches.of(grpo_batch)
        if record.batch is None or record.batch.given["input_ids"] is not model_inputs["input_ids"]:
            form = self._form if self.enabled.shared_prefix else None
            mask = grpo_batch.completion_mask
            record.batch = analyse(model_inputs, mask, self._family, form)
            if record.batch.reason:
                self._say(f"micro-batch not packed ({record.batch.reason}): stock forward used")
        return record.batch

    # Features of images.

    @property
    def vision(self) -> VisionOnce | None:
        """Features for the current kind of generation batch, training or evaluation; None if not kept."""
        return self._vision[self._host.model.training] if self.enabled.vision_once else None

    def _new_vision(self) -> VisionOnce | None:
        if self._tower is None or self._family is None:
            return None
        limit = VISION_BYTES
        return VisionOnce(self._family, limit, self._tower.agree, self._tower.blank)

    def _in_step(self, stock: Callable[..., Scores]) -> Callable[..., Scores]:
        """ms-swift's own pass, with as many tower calls as other ranks make in theirs."""

        def stock_in_step(model: nn.Module, inputs: Inputs, *args: Any, **kwargs: Any) -> Scores:
            with self.in_step(model, inputs):
                return stock(model, inputs, *args, **kwargs)

        return stock_in_step

    def in_step(self, model: nn.Module, inputs: Inputs) -> AbstractContextManager[None]:
        """While this is open, one forward is made over inputs: no tower for text alone, ranks in step."""
        if self._tower is None or self._leaves_tower:
            return nullcontext()
        media = sum(inputs.get(pixels) is not None for pixels in GRIDS_OF)
        return self._tower.calls.over(base_model(self._host, model), media)

    def end_micro_batch(self) -> None:
        """A micro-batch has its gradients."""
        if self._tower:
            self._tower.end_micro_batch()


def parts_within(batch: MicroBatch, most: int) -> list[MicroBatch]:
    """As few packs of a micro-batch as can be, of at most so many tokens; a longer row is one by itself.

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
