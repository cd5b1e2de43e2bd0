"""Does the rollout engine sample from the policy that is trained? Compared with passes that run anyway.

Until the first update over a generation batch the policy has the weights that its completions were sampled
by, and its pass computes the log-prob of every sampled token. The token ids of a prompt are compared with
those of its row when the row is encoded. Both trainers use it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from accelerate.utils import gather_object
from jaxtyping import Bool, Float
from torch import Tensor

from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.models.template import images_in
from swift_grpo_ext.ms_swift.shared import GRPOBatch, RolloutOutput
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.engine_verdict import (
    EARLY,
    FULL_PRECISION,
    HALF_PRECISION,
    Agreement,
    Distance,
    judge,
    prompt_difference,
)
from swift_grpo_ext.trainer.host import once_of_run
from swift_grpo_ext.trainer.row_names import row_name
from swift_grpo_ext.trainer.samples import Inputs, PerToken, VisionSample
from swift_grpo_ext.watch.guard import Guard, watches
from swift_grpo_ext.watch.records import EngineRecord

PART = "engine check"
FIRST = 3  # rollouts that are checked, each: a lost weight sync shows at the second
EVERY = 50  # steps between two checks after them
_CLEARLY = 0.1  # share of a turn's largest gap, from which on a token counts as different
_LARGEST = 20.0  # nats; larger gaps, and NaN, count as this


class EngineCheck:
    """Checks the first generation batches of a start, and then one every `EVERY` steps.

    ``host`` is the trainer of either engine.
    """

    def __init__(self, host: Any, guard: Guard, is_on: bool) -> None:
        self._host = host
        self.guard = guard
        self._is_on = is_on
        self._checks = 0
        self._step = -1  # of the newest check
        self._is_due = False
        # What this rank has compared in the current check, by turn; prompts come before the first.
        self._here: defaultdict[int, Agreement] = defaultdict(Agreement)
        self._agreed: int | None = None  # step of the last check without a fault
        self._say = once_of_run(host, "engine check: ")
        family = family_of(host.template.config)
        self._placeholders = family.placeholder_token_ids if family else ()

    def begin(self) -> None:
        """Say that completions are about to be sampled.

        Whether they are checked follows from configuration and step, so it is the same on every rank.
        """
        step = self._host.state.global_step
        if not self._is_on or not self._host.model.training or step == self._step:
            return
        self._is_due = self._checks < FIRST or step - self._step >= EVERY
        if self._is_due:
            self._checks += 1
            self._step = step
            self._here = defaultdict(Agreement)

    @watches(PART)
    def note(self, samples: Sequence[VisionSample], outputs: Sequence[RolloutOutput]) -> None:
        """Keep with each completion the token ids of the last prompt that it was sampled after."""
        for sample, output in zip(samples, outputs, strict=True) if self._is_due else ():
            # Later turns saw what has been cut away.
            if not sample.held_placeholder:
                sample.engine_prompt = output.response.prompt_token_ids or ()

    @contextmanager
    def reading_prompts(self, module: ModuleType) -> Iterator[None]:
        """While this is open, rows that a module of ms-swift encodes are compared with the prompts."""
        encode: Callable[..., Inputs] = vars(module)["encode_sample"]

        def encode_sample(sample: VisionSample, *args: Any, **kwargs: Any) -> Inputs:
            encoded = encode(sample, *args, **kwargs)
            self._compare_prompt(sample, encoded)
            return encoded

        with swapped(module, "encode_sample", encode_sample):
            yield

    @watches(PART)
    def _compare_prompt(self, sample: VisionSample, encoded: Inputs) -> None:
        prompt, sample.engine_prompt = sample.engine_prompt, ()
        if not (prompt and self._is_due):
            return
        images = len(sample.images or images_in(sample.messages))
        decode = self._host.template.tokenizer.decode
        words = prompt_difference(prompt, encoded["input_ids"], self._placeholders, images, decode)
        self._here[0] += Agreement(prompts=1, prompt=words and f"{words} ({row_name(sample)})")

    def add(
        self,
        grpo_batch: GRPOBatch,
        logps: PerToken,
        forwarded: Bool[Tensor, "batch keep"] | None = None,
        samples: Sequence[VisionSample] = (),
    ) -> None:
        """Take in a micro-batch whose weights are those that sampled it.

        Args:
            grpo_batch: The micro-batch, with the engine's log-probs if it returned any.
            logps: Log-probs by the policy, in nats.
            forwarded: Tokens that the policy's pass went over; None: all.
            samples: Of its rows, if they are known.
        """
        if self._is_due:  # else nothing is read, and a GPU is not waited for
            self._hold_against(grpo_batch, logps, forwarded, samples)

    @watches(PART)
    def _hold_against(
        self,
        grpo_batch: GRPOBatch,
        logps: PerToken,
        forwarded: Bool[Tensor, "batch keep"] | None,
        samples: Sequence[VisionSample],
    ) -> None:
        engine = grpo_batch.rollout_per_token_logps
        if self._why_not() or (engine is not None and engine.shape != logps.shape):
            return
        # Copied to the CPU at once: each read below would otherwise wait for the device.
        mask = grpo_batch.completion_mask.bool()
        mask = (mask if forwarded is None else mask & forwarded).cpu()
        policy = logps.detach().float().cpu()
        at_once = None if engine is None else engine.float().cpu()
        for row, kept in enumerate(mask):
            name = row_name(samples[row]) if samples else f"completion {row} of a micro-batch"
            places = kept.nonzero()[:, 0]
            runs = places.tensor_split((places.diff() > 1).nonzero()[:, 0] + 1)
            # A template closes turns by tokens that nobody sampled, for which ms-swift drops all log-probs.
            turns = samples[row].rollout_logprobs if samples else []
            if at_once is not None:
                turns = [at_once[row, run] for run in runs]
            if len(turns) != len(runs):  # the engine gave none, or their turns are unknown
                continue
            for turn, (run, turn_logps) in enumerate(zip(runs, turns, strict=True), 1):
                theirs = torch.as_tensor(turn_logps)[: len(run)]
                difference = theirs - policy[row, run[: len(theirs)]]
                self._here[turn] += self._agreement(difference, f"turn {turn} of {name}")

    def _agreement(self, difference: Float[Tensor, " tokens"], place: str) -> Agreement:
        args = self._host.args
        if (args.top_p or 1) < 1 or (args.top_k or 0) > 0 or getattr(args, "min_p", 0):
            # The engine's log-probs are those after its filters, so they may be larger but not smaller.
            difference = difference.clamp(max=0)
        gaps = difference.abs().nan_to_num(_LARGEST).clamp(max=_LARGEST)
        token = int((gaps >= _CLEARLY * gaps.amax()).int().argmax()) if len(gaps) else 0
        first_gap = f"engine and trainer first differ at token {token} of {place}"
        return Agreement(Distance.of(gaps[:EARLY]), Distance.of(gaps[EARLY:]), first_gap=first_gap)

    def compare(self) -> EngineRecord | None:
        """Judge the check of an update; None if none was due, or possible. Every rank comes here."""
        if not self._is_due:
            return None
        self._is_due = False
        of_ranks: list[dict[int, Agreement]] = gather_object([dict(self._here)])
        return self.guard.run(PART, lambda: self._judged(of_ranks))

    def _judged(self, of_ranks: Sequence[dict[int, Agreement]]) -> EngineRecord | None:
        args = self._host.args
        name = f"vLLM {args.vllm_mode}" if args.use_vllm else "transformers' generate"
        lags = self._checks > 1 and getattr(args, "async_generate", False)
        half = args.bf16 or args.fp16 or next(self._host.model.parameters()).dtype.itemsize == 2
        limit = HALF_PRECISION if half else FULL_PRECISION
        parts = {(rank, turn): part for rank, turns in enumerate(of_ranks) for turn, part in turns.items()}
        record = judge(parts, self._agreed, name, limit, lags)
        now = sum(parts.values(), Agreement())
        if now.all.tokens and not record.rule:
            self._agreed = self._step
        if not now.prompts:
            self._say("prompts not compared: no token ids of the engine")
        if not now.all.tokens:
            self._say(f"log-probs not compared: {self._why_not() or 'the engine returns none'}")
        return record if record.rule or now.all.tokens else None

    def _why_not(self) -> str:
        """Say why log-probs of an engine are not of the policy's distribution; empty if they are."""
        args = self._host.args
        if args.repetition_penalty not in (None, 1.0):
            return "a repetition penalty changes what tokens are drawn from"
        return "" if args.temperature else "--temperature 0 draws nothing"
