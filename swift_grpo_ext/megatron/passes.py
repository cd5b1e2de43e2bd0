"""The passes over a micro-batch with Megatron: old, reference and policy log-probs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from swift.megatron.trainers import base, grpo_trainer, utils, vocab_parallel_utils
from swift.rl_core.data import GRPOBatch
from swift.utils import get_logger
from torch import Tensor
from torch.nn.functional import pad

import swift_grpo_ext.ms_swift.megatron  # noqa: F401  (names that are replaced here)
from swift_grpo_ext.features import Features
from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.micro_batch import MicroBatch
from swift_grpo_ext.group.self_check import limits, mismatch
from swift_grpo_ext.group.vision_once import VISION_BYTES
from swift_grpo_ext.megatron.attention import ONE_CALL, SDPA, why_not_one_call
from swift_grpo_ext.megatron.features import decide
from swift_grpo_ext.megatron.host import Logps, MegatronHost
from swift_grpo_ext.megatron.layers import install
from swift_grpo_ext.megatron.packs import Inputs, SharedBatch, analysed, shared
from swift_grpo_ext.megatron.predictions import IGNORED, Predictions, predictions_of_rows
from swift_grpo_ext.megatron.vision import Vision
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.distributed import agreed_max, all_equal
from swift_grpo_ext.trainer.first_pass import Attempt, FirstPasses

logger = get_logger()
# Inputs, beside labels, with a value for each token, which is 0 where it is padding.
_OF_TOKENS = ("input_ids", "position_ids", "text_position_ids", "mm_token_type_ids", "loss_scale")


@dataclass
class KnownBatch:
    """Facts about one micro-batch."""

    predictions: Predictions | None = None  # its completion tokens; None if it uses ms-swift's forward
    batch: MicroBatch | None = None  # its images, if they are encoded once
    shared: SharedBatch | None = None  # its pack, if prompts are shared in it
    first_update: bool = False  # nothing is updated before its policy pass, so it needs no old one
    taught: bool = False  # a teacher's log-probs are compared with the old ones


class MegatronPasses:
    """Answers the trainer's questions for log-probs."""

    def __init__(self, host: MegatronHost, settings: Settings) -> None:
        self._host = host
        self.features = decide(host, settings)
        self._table: dict[int, KnownBatch] = {}  # by ms-swift's micro-batch
        self._first_passes = FirstPasses(host.device, on="self_check" in self.features, waits=True)
        self._phase = ""  # of the passes while a generation batch is prepared
        self._current: KnownBatch | None = None
        self._before_update = 0  # micro-batches of the first update that are yet to come
        self.changed: Callable[[], None] = lambda: None  # called when something is turned off
        self.prepared: list[GRPOBatch] = []  # micro-batches of the current generation batch, in order
        self._family = family_of(host.template.config) if host.args.is_multimodal else None
        self._form: PackForm | None = None
        self._vision: dict[bool, Vision] = {}  # of training, of evaluation
        if "shared_prefix" in self.features:
            install(self._models)
            self._form = PackForm(self._attention())
        if "vision_once" in self.features and self._family:
            self._vision = {mode: Vision(self._models, self._family, VISION_BYTES) for mode in (True, False)}

    def tell(self, *messages: str) -> None:
        """Log each message that is not empty once, on the rank that speaks."""
        for message in filter(None, messages):
            logger.info_once(f"swift-grpo-ext: {message}")

    @property
    def _models(self) -> list[torch.nn.Module]:
        return [*self._host.unwrapped_models, *self._host.ref_models]

    @property
    def _training(self) -> bool:
        return self._host.unwrapped_models[0].training

    @property
    def pads(self) -> bool:
        """True if rows are padded when a pass is made: each token of ms-swift's padding counts as a row."""
        return bool(self._host.template.padding_free) and "completion_logits" in self.features

    def _attention(self) -> str:
        why = why_not_one_call(self._host.unwrapped_models, self._host.config)
        if not agreed_max(int(bool(why)), self._host.device):
            return ONE_CALL
        self.tell(f"attention of packs is SDPA ({why or 'one call failed on another rank'})")
        return SDPA

    # A generation batch.

    def begin(self) -> None:
        """Begin a generation batch; what is known of the one before is forgotten."""
        self._before_update = self._host.args.num_microbatches
        self.prepared.clear()
        if self._training:
            self.forget()
        if vision := self._vision.get(self._training):
            vision.clear()

    def forget(self) -> None:
        """Forget what is known of micro-batches."""
        self._table.clear()

    @contextmanager
    def generation_batch(self) -> Iterator[None]:
        """While this is open, ms-swift makes micro-batches of samples."""
        self.begin()
        stock = grpo_trainer.get_padding_to
        with swapped(grpo_trainer, "get_padding_to", lambda args: None if self.pads else stock(args)):
            yield

    @contextmanager
    def preparing(self, inputs: Inputs) -> Iterator[None]:
        """While this is open, the reference's and the old pass over a micro-batch are made."""
        self.prepared.append(inputs["grpo_batch"])
        self._before_update -= 1
        known = self.prepare(inputs, self._before_update >= 0 or not self._training)
        # Passes change the mapping and none of its tensors, so pixels need no copy.
        with (
            swapped(self, "_current", known),
            self.phase("old"),
            swapped(grpo_trainer, "deepcopy", dict),
        ):
            yield

    def prepare(self, inputs: Inputs, first_update: bool) -> KnownBatch:
        """Decide how passes over a micro-batch run, together with all ranks that compute it."""
        known = self._table[id(inputs["grpo_batch"])] = self._known(inputs, self.features)
        known.first_update = first_update
        return known

    def _known(self, inputs: Inputs, features: Features) -> KnownBatch:
        """How passes over a micro-batch run with these features. Every rank that computes it comes here."""
        known = KnownBatch()
        if "completion_logits" not in features:
            return known
        known.predictions = predictions_of_rows(self._padded(inputs)["labels"])
        form = self._form if "shared_prefix" in features else None
        if not form and "vision_once" not in features:
            return known
        batch = analysed(inputs, inputs["grpo_batch"], self._family, form)
        if batch.reason:
            self.tell(f"micro-batch used the stock forward: {batch.reason}")
        known.shared = self._agreed(shared(batch, inputs["labels"], self._multiple) if form else None)
        if known.shared:
            known.predictions = known.shared.predictions
        if "vision_once" in features and self._vision:
            known.batch = known.shared.batch if known.shared else batch
        return known

    def _agreed(self, batch: SharedBatch | None) -> SharedBatch | None:
        """The pack, if all ranks that compute it together have the same."""
        signature = batch.signature if batch else ""
        if all_equal(signature, self._host.device, self._host._get_rollout_group()):
            return batch
        self.tell("micro-batch used the stock forward: ranks disagree about its layout")
        return None

    @property
    def phase_now(self) -> str:
        """Phase of the passes of this moment, as in `watch.phases`."""
        return "logps" if self._phase in ("", "teacher") else self._phase

    def phase(self, name: str) -> AbstractContextManager[None]:
        """While this is open, passes are for something else than the old log-probs."""
        return swapped(self, "_phase", name)

    def logps(self, inputs: Inputs, stock: Callable[[Iterator[Any]], Logps]) -> Logps:
        """Log-probs of the current micro-batch, of reference, teacher or old policy; None: not needed."""
        known = self._current
        if known and self._phase == "teacher":
            known.taught = True
        if known is None or self._phase == "teacher":
            return stock(iter([self._padded(inputs)]))
        if known.predictions and self._first_passes.is_due("pass"):
            known = self._checked(known, inputs, stock)
        if self._phase == "old" and self._needs_no_old(known) and not known.taught:
            return None, None
        return self._pass(known, inputs, stock)

    # An update.

    def policy(self, inputs: Inputs) -> AbstractContextManager[None]:
        """While this is open, the policy's pass over a micro-batch is made."""
        known = self._table.get(id(inputs["grpo_batch"]))
        return self._way(known) if known else nullcontext()

    def note_policy(self, grpo_batch: GRPOBatch, logps: Tensor) -> bool:
        """Note a finished policy pass; True if nothing was updated since its completions were sampled.

        Then its log-probs ``(batch, seq)`` are the old ones.
        """
        known = self._table.get(id(grpo_batch))
        if known is None:
            return False
        if self._needs_no_old(known):
            grpo_batch.old_per_token_logps = logps.detach()
        return known.first_update

    def _needs_no_old(self, known: KnownBatch) -> bool:
        return known.first_update and "skip_old_logps" in self.features

    # How a pass goes.

    def _pass(self, known: KnownBatch, inputs: Inputs, stock: Callable[[Iterator[Any]], Logps]) -> Logps:
        with self._way(known):
            return stock(iter([dict(inputs)]))  # a pass moves the labels of the mapping that it is given

    @contextmanager
    def _way(self, known: KnownBatch) -> Iterator[None]:
        prepare = partial(self._prepared, known, utils.prepare_batch)
        stock = vocab_parallel_utils.compute_logps_and_entropy_from_logits
        with ExitStack() as stack:
            for module in (base, utils):
                stack.enter_context(swapped(module, "prepare_batch", prepare))
            if known.predictions:
                for module in (grpo_trainer, vocab_parallel_utils):
                    compute = partial(known.predictions.computed, stock)
                    stack.enter_context(swapped(module, "compute_logps_and_entropy_from_logits", compute))
                stack.enter_context(self._host.output_layers.only(known.predictions.places))
            if known.batch:
                stack.enter_context(self._vision[self._training].standing_in(known.batch))
            yield

    def _prepared(
        self,
        known: KnownBatch,
        stock: Callable[..., Inputs],
        args: Any,
        data: Inputs,
        vp_stage: int | None = None,
    ) -> Inputs:
        if known.shared:
            return known.shared.inputs(encoded=known.batch is not None)
        return stock(args, self._padded(data), vp_stage)

    def _padded(self, inputs: Inputs) -> Inputs:
        """Rows end to end, as many tokens as sequence parallelism can divide."""
        rest = -inputs["input_ids"].shape[-1] % self._multiple
        if not rest or not self._host.template.padding_free:
            return inputs
        per_token = {name: inputs[name] for name in _OF_TOKENS if isinstance(inputs.get(name), Tensor)}
        longer = {name: pad(row, (0, rest)) for name, row in per_token.items()}
        labels = pad(inputs["labels"], (0, rest), value=IGNORED)
        return inputs | longer | {"labels": labels}

    @property
    def _multiple(self) -> int:
        args = self._host.args
        return int(args.tensor_model_parallel_size) if args.sequence_parallel else 1

    # The check of the first pass.

    def _checked(
        self, known: KnownBatch, inputs: Inputs, stock: Callable[[Iterator[Any]], Logps]
    ) -> KnownBatch:
        """How a micro-batch runs once our pass was compared with ms-swift's. Every rank comes here."""

        def attempt(features: Features) -> Attempt[KnownBatch]:
            ours = known if features == self.features else self._known(inputs, features)
            compares = bool((inputs["labels"] != IGNORED).any())
            return Attempt(lambda: self._why_wrong(ours, inputs, stock), lambda: ours, compares)

        made, features = self._first_passes.run("pass", self.features, attempt)
        made = made or KnownBatch()
        # The same object, which the update's pass finds again.
        known.predictions, known.batch, known.shared = made.predictions, made.batch, made.shared
        if features != self.features:
            self.features = features
            self.changed()
        return known

    def _why_wrong(self, known: KnownBatch, inputs: Inputs, stock: Callable[[Iterator[Any]], Logps]) -> str:
        """Reason why our log-probs cannot be used; empty if they can, and on stages without log-probs."""
        actual, expected = (self._pass(way, inputs, stock)[0] for way in (known, KnownBatch()))
        if actual is None or expected is None:
            return ""
        ahead = inputs["labels"].roll(-1, -1) != IGNORED
        ours, theirs = (logps[..., : ahead.shape[-1]] for logps in (actual, expected))
        return mismatch(ours, theirs, ahead, limits(theirs, theirs, ahead, self._host.config.params_dtype))
