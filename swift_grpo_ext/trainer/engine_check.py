"""Holds what a rollout engine says of its own tokens against what the trainer computes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from accelerate.utils import gather_object
from swift.utils import get_logger

from swift_grpo_ext.group.sampled_logps import Sampling
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.engine_compare import Claim, Comparison, together
from swift_grpo_ext.trainer.engine_recorder import Recorder
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import VisionSample
from swift_grpo_ext.watch.agreement import Agreement, EngineFacts, judge
from swift_grpo_ext.watch.records import EngineRecord

logger = get_logger()
T = TypeVar("T")

ROWS = 4
"""Completions of a check, on each rank."""
FIRST_STEPS = 3
"""Checked each: a weight sync that does not arrive shows at the second one."""


class EngineCheck:
    """Checks the engine at the first steps, and every so many after them.

    Args:
        host: The trainer.
        every: Steps between two checks; 0: never.

    Attributes:
        why_off: Why nothing is checked; empty if it is.
        history: The checks so far, the same on every rank.
    """

    def __init__(self, host: Host, every: int) -> None:
        self._host, self._every = host, every
        self._claims: list[Claim] = []
        self._recorder: Recorder | None = None
        self._checked, self._listening, self._told = -1, False, False
        self.history: list[Agreement] = []
        self.why_off = "" if every else "switched off"
        if host.template.sequence_parallel_size > 1:
            self.why_off = "sequence parallel"
        elif host.args.repetition_penalty not in (None, 1.0):
            self.why_off = "a repetition penalty changes what tokens are drawn from"

    def _due(self) -> bool:
        """The next rollout is checked. From configuration and the step alone: the same on every rank."""
        step = self._host.state.global_step
        if self.why_off or not self._host.model.training or step == self._checked:
            return False
        return bool(step < FIRST_STEPS or step % self._every == 0)

    @property
    def engine(self) -> EngineFacts:
        """The engine of this run."""
        host, args = self._host, self._host.args
        return EngineFacts(
            f"vLLM {host.vllm_mode}" if args.use_vllm else "transformers' generate",
            half=bool(args.bf16 or args.fp16 or next(host.model.parameters()).dtype.itemsize == 2),
            lags=bool(args.async_generate),
            temperature=args.temperature,
        )

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While this is open, a rollout begins and ends; what transformers draws is written down."""
        self._claims, self._recorder = [], None
        self._listening = self._due()  # later the model may be in evaluation mode, to sample
        if not self._listening or self._host.args.use_vllm:
            yield
            return
        base = self._host.template.get_base_model(self._host.accelerator.unwrap_model(self._host.model))
        self._recorder = Recorder(ROWS)
        with swapped(base, "_get_logits_processor", self._recorder.after(base._get_logits_processor)):
            yield

    def note(self, outputs: Sequence[Any]) -> None:
        """Keep what the engine says of a few completions of this rank.

        Args:
            outputs: ms-swift's rollout outputs, one for each sample in their order.
        """
        if not self._listening or self._claims or self._host.dynamic_num_samples:
            return
        for row in range(0, len(outputs), max(1, len(outputs) // ROWS)):
            response = outputs[row].response
            choice = response.choices[0]
            logps = self._recorder.of_row(row, len(outputs)) if self._recorder else _logps_of(choice)
            if outputs[row].messages is None:  # of several turns the prompt is not one piece
                self._claims.append(
                    Claim(row, response.prompt_token_ids, list(choice.token_ids or ()), logps)
                )

    def look(self, samples: Sequence[VisionSample]) -> EngineRecord | None:
        """Compare; every rank comes here together.

        Args:
            samples: This rank's, with completions.

        Returns:
            What it shows over all ranks; None where nothing is due or possible.
        """
        if not self._listening:
            return None
        self._checked = self._host.state.global_step
        claims = [claim for claim in self._claims if claim.row < len(samples) and claim.logps]
        if not all(gather_object([bool(claims)])):
            self._turn_off("the engine returns no log-probs of what it samples")
            return None
        try:
            return self._over_ranks(claims, [samples[claim.row] for claim in claims])
        except _CheckFailedError as problem:
            self._turn_off(str(problem))
            return None

    def _over_ranks(self, claims: Sequence[Claim], samples: Sequence[VisionSample]) -> EngineRecord:
        made: list[Comparison] = []

        def compare() -> Any:
            made.append(Comparison(self._host, claims, samples, self._sampling()))
            return made[0].as_configured()

        parts, engine = _of_all_ranks(compare), self.engine
        found = together(self._checked, parts)
        if found.all.mean_ratio > engine.limit:
            found = together(self._checked, parts, _of_all_ranks(lambda: made[0].otherwise()))
        shown = judge(found, self.history, engine)
        self.history.append(found)
        return shown

    def _sampling(self) -> Sampling:
        args, top_k = self._host.args, self._host.args.top_k or 0
        if self._recorder and top_k <= 0 and self._recorder.top_k:
            # ms-swift hands "all" on as None, which transformers takes for its own default.
            top_k = self._recorder.top_k
            if not self._told and self._host.accelerator.is_main_process:
                logger.info(
                    f"swift-grpo-ext: --top_k {args.top_k} asks for all tokens, but transformers samples "
                    f"among the {top_k} likeliest, its default; --top_k <size of the vocabulary> is all"
                )
            self._told = True
        family = family_of(self._host.template.config)
        forbidden = tuple(family.forbidden_token_ids) if family else ()
        return Sampling(args.temperature, top_k, args.top_p or 1.0, args.min_p or 0.0, forbidden)

    def _turn_off(self, reason: str) -> None:
        self.why_off = reason
        if self._host.accelerator.is_main_process:
            logger.warning(f"swift-grpo-ext: rollout engine and trainer are not compared: {reason}")


class _CheckFailedError(Exception):
    """A rank could not compare."""


def _of_all_ranks(make: Callable[[], T]) -> list[T]:
    """What each rank makes.

    Raises:
        _CheckFailedError: A rank's attempt raised; on every rank, since a check must not end a run.
    """
    mine, problem = None, ""
    try:
        mine = make()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    found: list[tuple[Any, str]] = gather_object([(mine, problem)])
    for _, text in found:
        if text:
            raise _CheckFailedError(text)
    return [part for part, _ in found]


def _logps_of(choice: Any) -> list[float]:
    """Log-probs that an engine reports with a completion; empty if it does not."""
    content = (choice.logprobs or {}).get("content") or ()
    return [float(entry["logprob"]) for entry in content]
