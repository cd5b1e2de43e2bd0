"""When the rollout engine is checked, by which completions, and what becomes of it over ranks."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import compress, islice, zip_longest
from typing import TypeVar

from accelerate.utils import gather_object

from swift_grpo_ext.group.logps import Sampling
from swift_grpo_ext.models.families import forbidden_token_ids
from swift_grpo_ext.ms_swift.shared import RolloutInferRequest, RolloutOutput
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.distributed import all_ranks_are_here, gathers_parameters
from swift_grpo_ext.trainer.engine.agreement import (
    SETTINGS,
    Agreement,
    Distance,
    EngineFacts,
    judge,
    over_ranks,
    total,
)
from swift_grpo_ext.trainer.engine.comparison import Comparison
from swift_grpo_ext.trainer.engine.prompts import marks_of
from swift_grpo_ext.trainer.engine.recorder import RECORDER, Recorder
from swift_grpo_ext.trainer.host import Host, base_model, once_of_run, tower_modules
from swift_grpo_ext.trainer.row_names import row_name
from swift_grpo_ext.trainer.samples import Claim, VisionSample
from swift_grpo_ext.watch.guard import watches
from swift_grpo_ext.watch.records import EngineRecord, is_garbage

T = TypeVar("T")

# completions of a check on each rank, at the first steps and later
ROWS = 2
LATER_ROWS = 1
PART = "engine check"
CAUSES = "causes of the engine check"  # tried where a fault is found: dozens of times what a check takes
CLAIMS = "claims of the engine"
FIRST_STEPS = 3  # rollouts checked each, also after a fault: a lost weight sync shows at the second


@dataclass(frozen=True)
class Choice:
    """What a rank can compare."""

    samples: Sequence[VisionSample]
    rows: int  # their number
    logps: bool  # the engine gave log-probs of some
    prompts: bool  # it says which prompts it saw
    garbage: int  # completions of the rollout that are no text
    completions: int  # of the rollout, in all


class EngineCheck:
    """Checks the engine at the first steps, and every so many after them; 0: never."""

    def __init__(self, host: Host, every: int) -> None:
        self._host = host
        self._every = every
        self.guard = host.guard
        self._recorder: Recorder | None = None
        self._records = False
        self._labels: dict[str | None, str] = {}  # what rows are called, before turns add images
        self._turns: defaultdict[str | None, list[Claim]] = defaultdict(list)  # by request, of this rollout
        self.rows = ROWS  # compared of each rank at the first steps
        self._checked = -1  # step of the newest check
        self._next = 0  # step from which on one is due again
        self._at_once = FIRST_STEPS  # rollouts that are checked first; a resumed run has a new engine
        self._say = once_of_run(host, "engine check: ")
        self.record: EngineRecord | None = None  # of the newest check
        self.history: list[Agreement] = []  # the checks so far, the same on every rank
        if every and host.template.sequence_parallel_size > 1:
            self._every = 0
            self._say(
                "off: sequence parallelism (a rank has a part of each row; its log-probs would have to be "
                "gathered over the ranks of a sequence)"
            )

    def agrees(self) -> bool:
        """The newest check found no fault in the engine's log-probs; the same on every rank."""
        checked = bool(self.history) and self.guard.is_on(PART)
        return checked and self._engine().agrees(self.history[-1])

    def _due(self) -> bool:
        """The next rollout is checked. From configuration and earlier checks: the same on every rank."""
        step = self._host.state.global_step
        if not self._every or not self._host.model.training or step == self._checked:
            return False
        return bool(self._at_once or step >= self._next)

    def _engine(self) -> EngineFacts:
        host = self._host
        args = self._host.args
        sampling = self._sampling()
        towers = tower_modules(host, host.model)
        return EngineFacts(
            f"vLLM {host.vllm_mode}" if args.use_vllm else "transformers' generate",
            half=bool(args.bf16 or args.fp16 or next(host.model.parameters()).dtype.itemsize == 2),
            trains_tower=any(one.requires_grad for tower in towers for one in tower.parameters()),
            lags=bool(args.async_generate),
            configured={name: getattr(sampling, name) for name in SETTINGS},
        )

    def begin(self) -> None:
        """A rollout begins; where it is to be compared, what transformers draws is written down."""
        self._records = not self._host.args.use_vllm and self._due()

    def turn(
        self,
        requests: Sequence[VisionSample | RolloutInferRequest],
        answer: Callable[[], list[RolloutOutput]],
    ) -> list[RolloutOutput]:
        """The engine's answers in one turn of a rollout. ``--async_generate`` comes here in a thread."""
        if not requests:  # the last call of several turns
            return answer()
        self._recorder = Recorder(self.rows, self.guard) if self._records else None
        with self.guard.around(RECORDER, self._recording) if self._records else nullcontext():
            outputs = answer()
        self._keep_claims(requests, outputs)
        return outputs

    def _recording(self) -> AbstractContextManager[object]:
        assert self._recorder
        base = base_model(self._host, self._host.model)
        return swapped(base, "_get_logits_processor", self._recorder.after(base._get_logits_processor))

    @watches(CLAIMS)
    def _keep_claims(
        self, requests: Sequence[VisionSample | RolloutInferRequest], outputs: Sequence[RolloutOutput]
    ) -> None:
        """Keep what the engine says; a scheduler in a server may answer a request with several samples."""
        if not self._keeps_claims() or len(requests) != len(outputs):
            return
        for row, (request, output) in enumerate(zip(requests, outputs, strict=True)):
            first = isinstance(request, VisionSample)
            name = request.request_id if first else request.uuid
            if first:
                self._labels[name] = row_name(request)
            claims = claims_of(output)
            if self._recorder:
                claims = [replace(claim, logps=self._recorder.of_row(row, len(outputs))) for claim in claims]
            if self._due():
                claims[-1] = replace(
                    claims[-1],
                    pictures=marks_of(request.images),
                    messages=deepcopy(request.messages),
                    images=tuple(request.images or ()),
                )
            self._turns[name] += claims

    def note(self, samples: list[VisionSample], outputs: Sequence[RolloutOutput]) -> list[VisionSample]:
        """Keep with each completion what the engine said."""
        self._add_claims(samples, outputs)
        return samples

    @watches(CLAIMS)
    def _add_claims(self, samples: list[VisionSample], outputs: Sequence[RolloutOutput]) -> None:
        if not self._keeps_claims():
            return
        for sample, output in zip(samples, outputs, strict=True):
            claims = self._turns.pop(sample.request_id, None) or claims_of(output)
            sample.row_label = self._labels.pop(sample.request_id, "") or row_name(sample)
            if len(claims) == 1 or not sample.held_placeholder:  # later turns saw what has been cut away
                sample.claims = tuple(claims)

    def _keeps_claims(self) -> bool:
        return bool(self._every and (self._records or self._host.args.use_vllm))

    def compare(self, samples: Sequence[VisionSample]) -> EngineRecord | None:
        """Compare completions of all ranks, which come here together; None where none is due or possible."""
        if not self._due() or not self.guard.is_on(PART):
            return None
        step = self._checked = self._host.state.global_step
        self._next = step - step % self._every + self._every
        rows = self.rows if self._at_once else LATER_ROWS
        self._at_once = max(0, self._at_once - 1)
        choice = self._on_all_ranks(lambda: self._choose(samples, rows))
        if choice is None:
            return None
        of_ranks: list[Choice] = gather_object([replace(choice, samples=())])
        rows = min(rank.rows for rank in of_ranks)  # ranks go through the model equally often
        if not rows:
            self._say("off: the engine returns neither token ids nor prompts")
            return None
        if not any(rank.prompts for rank in of_ranks):
            self._say("prompts not compared: the engine does not return the token ids that it saw")
        why = self._unscored()
        if not why and not any(rank.logps for rank in of_ranks):
            why = "the engine returns none"
        if why:
            self._say(f"log-probs (weights, LoRA, temperature, filters) not compared: {why}")
        garbage = sum(rank.garbage for rank in of_ranks) / sum(rank.completions for rank in of_ranks)
        return self._over_ranks(choice.samples[:rows], not why, garbage)

    def _choose(self, samples: Sequence[VisionSample], rows: int) -> Choice:
        claimed = [sample for sample in samples if sample.claims]
        with_logps = [sample for sample in claimed if any(claim.logps for claim in sample.claims)]
        claimed = with_logps or claimed
        chosen = claimed[:: max(1, len(claimed) // rows)][:rows]
        claims = [claim for sample in chosen for claim in sample.claims]
        return Choice(
            samples=chosen,
            rows=len(chosen),
            logps=bool(with_logps),
            prompts=any(claim.prompt for claim in claims),
            garbage=sum(is_garbage(str(s.messages[-1]["content"]), s.is_truncated) for s in samples),
            completions=len(samples),
        )

    def _on_all_ranks(self, action: Callable[[], T], part: str = PART) -> T | None:
        """What this rank makes; None on all, and the part is off, if one of them cannot."""
        host = self._host
        return self.guard.together(
            part, action, lambda: gathers_parameters(host) and not all_ranks_are_here("engine check")
        )

    def _over_ranks(
        self, samples: Sequence[VisionSample], scored: bool, garbage: float
    ) -> EngineRecord | None:
        """Every rank may have an engine of its own: those that differ are judged by themselves."""
        engine = self._engine()
        comparison = self._on_all_ranks(
            lambda: Comparison(self._host, samples, self._sampling(), engine, scored)
        )
        if comparison is None:
            return None
        of_rank = self._on_all_ranks(comparison.as_configured)
        if of_rank is None:
            return None
        parts: list[Agreement] = gather_object([of_rank])
        agreement = replace(over_ranks(parts), garbage=garbage)
        if scored and not agreement.all.tokens:
            self._say(
                "log-probs not compared: what the engine sampled is not in the rows that are trained on"
            )
        apart = [rank for rank, part in enumerate(parts) if part.all.mean_ratio > engine.limit]
        if apart:
            # Without causes the fault is told all the same.
            causes = self._on_all_ranks(comparison.otherwise, CAUSES) or {}
            of_ranks: list[dict[str, Distance]] = gather_object([causes])
            agreement = replace(
                over_ranks([parts[rank] for rank in apart]),
                hypotheses={name: total(of_ranks[rank][name] for rank in apart) for name in of_ranks[0]},
                prompt=agreement.prompt,
                ranks="" if len(apart) == len(parts) else f" of rank {', '.join(map(str, apart))}",
                garbage=garbage,
            )
        return self._on_all_ranks(lambda: self._judged(agreement, engine))

    def _judged(self, agreement: Agreement, engine: EngineFacts) -> EngineRecord:
        record = judge(agreement, self.history, engine)
        self.history.append(agreement)
        was_faulty = self.record is not None and self.record.rule
        if record.rule and not was_faulty:
            self._at_once = FIRST_STEPS
        self.record = record
        return record

    def _unscored(self) -> str:
        """Why log-probs cannot be compared, as far as the configuration tells; empty if they can."""
        args = self._host.args
        if args.repetition_penalty not in (None, 1.0):
            return "a repetition penalty changes what tokens are drawn from"
        if args.structured_outputs_regex:
            return "structured outputs change what tokens are drawn from"
        return "" if args.temperature else "--temperature 0 draws nothing"

    def _sampling(self) -> Sampling:
        args = self._host.args
        top_k = self._host.args.top_k or 0
        if self._recorder and top_k <= 0 and (used := self._recorder.top_k):
            # ms-swift hands "all" on as None, which transformers takes for its own default.
            self._say(
                f"--top_k {args.top_k} asks for all tokens, but transformers samples among the {used} "
                "likeliest, its default; --top_k <size of the vocabulary> is all"
            )
            top_k = used
        template = self._host.template
        forbidden = forbidden_token_ids(template.config, template.tokenizer)  # as the guard forbids them
        return Sampling(args.temperature, max(top_k, 0), args.top_p or 1.0, args.min_p or 0.0, forbidden)


def claims_of(output: RolloutOutput) -> list[Claim]:
    """What an answer says of its turns: of the last one all, of those before it tokens and log-probs."""
    choice = output.response.choices[0]
    content = (choice.logprobs or {}).get("content") or ()
    last = Claim(
        output.response.prompt_token_ids or (),
        choice.token_ids or (),
        [float(entry["logprob"]) for entry in content],
        output.response.images_size,
    )
    turns = zip_longest(
        output.response_token_ids[:-1], output.response_loss_mask, output.rollout_logprobs, fillvalue=()
    )
    before = islice(turns, max(0, len(output.response_token_ids) - 1))
    sampled = [(list(compress(ids, mask)) if mask else ids, logps) for ids, mask, logps in before]
    return [*(Claim((), tokens, logps) for tokens, logps in sampled), last]
