"""Link from the trainer to the monitors: tells `swift_grpo_ext.watch` phases, figures and samples."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from transformers import TrainerCallback, TrainingArguments

from swift_grpo_ext.ms_swift.shared import GRPOBatch, callbacks_map
from swift_grpo_ext.rewards.catalogue import PREFIX
from swift_grpo_ext.rewards.runtime.ledger import Report
from swift_grpo_ext.settings import disabled
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer import rollout_facts
from swift_grpo_ext.trainer.host import Host, tower_modules
from swift_grpo_ext.trainer.row_names import described
from swift_grpo_ext.trainer.samples import LossValue, PerToken, Rewards, VisionSample
from swift_grpo_ext.trainer.tracing import Tracer
from swift_grpo_ext.watch import records
from swift_grpo_ext.watch.guard import watches
from swift_grpo_ext.watch.watch import Watch

CALLBACK = "ext_watch"


def why_unwatched() -> str:
    """Reason why nothing watches a run, in a clause; empty if the monitors do."""
    return "" if CALLBACK in callbacks_map else "nothing watches; SWIFT_GRPO_EXT_DISABLE without callbacks"


class Monitors:
    """Feeds the monitors of one rank. Without the part ``callbacks`` it does nothing."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.guard = host.guard
        self._judged_step = 0
        self.watch: Watch | None = None
        self.tracer = Tracer(host)

    def among(self, callbacks: list[TrainerCallback], args: TrainingArguments) -> list[TrainerCallback]:
        """The run's callbacks with ours among them, on all ranks or on none.

        Ranks add up what they count at each step, and would wait for one that does not.
        """
        if kind := callbacks_map.get(CALLBACK):
            existing = (callback for callback in callbacks if isinstance(callback, kind))
            self.watch = next(existing, None) or self.guard.together(
                "monitors", lambda: kind(args, self._host)
            )
            if self.watch and self.watch not in callbacks:
                callbacks.append(self.watch)
        return callbacks

    def begin(self) -> None:
        """The trainer is built."""
        if self.watch:
            self.guard.together("set-up of the monitors", self._set_up)

    def _set_up(self) -> None:
        """Time the vision tower as a phase from now on, whoever calls it."""
        assert self.watch
        host = self._host
        self.tracer.begin(self.watch.journal)
        for module in tower_modules(host, host.model):
            module.register_forward_pre_hook(lambda *_: self._enter("vision"))
            module.register_forward_hook(lambda *_: self._leave("vision"), always_call=True)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """While this is open, the run is in a phase."""
        self._enter(name)
        try:
            yield
        finally:
            self._leave(name)

    @watches("phases")
    def _enter(self, name: str) -> None:
        if self.watch:
            self.watch.phases.enter(name)

    @watches("phases")
    def _leave(self, name: str) -> None:
        if self.watch:
            self.watch.phases.leave(name)

    @contextmanager
    def encoding(self) -> Iterator[None]:
        """While this is open, the time in which an engine of this process encodes its requests is a phase."""
        engine: Any = self._host.engine
        encode = getattr(engine, "_batch_encode", None)
        if encode is None or self._host.args.vllm_mode == "server":  # which encodes by itself
            yield
            return

        def timed(*args: object, **kwargs: object) -> object:
            with self.phase("encode"):
                return encode(*args, **kwargs)

        with swapped(engine, "_batch_encode", timed):
            yield

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While this is open, the run trains; DeadRunError afterwards says that it could not learn."""
        if not self.watch:
            yield
            return
        try:
            yield
        except BaseException as error:
            self.watch.failed(error)
            raise
        finally:
            self.watch.close()
        try:
            self.watch.end()
        finally:
            self._report()

    def leave(self) -> None:
        """The run is over.

        Raises:
            SystemExit: It ended before its time, or learned nothing because nothing was scored.
        """
        if self.watch and (status := self.watch.exit_status):
            raise SystemExit(status)

    @watches("report")
    def _report(self) -> None:
        trained = self._host.state.global_step
        if trained and self._host.accelerator.is_main_process and not disabled("callbacks.report"):
            from swift_grpo_ext.watch.report import report_at_end  # loads what draws

            report_at_end(self._host.args.output_dir)

    @watches("phases")
    def _rest_in(self, name: str) -> None:
        if self.watch:
            self.watch.phases.rest_in(name)

    def end_micro_batch(self) -> None:
        """Count the time after the last micro-batch of a step as the optimizer's."""
        if self._host.accelerator.sync_gradients:
            self._rest_in("optimizer")

    @watches("count of tokens")
    def add_pass(
        self, logps: PerToken, grpo_batch: GRPOBatch, forwarded: Bool[Tensor, "batch keep"] | None
    ) -> None:
        """Count the tokens of a pass with gradients, and how surprised the policy is by them."""
        if not self.watch or not self._host.model.training or not torch.is_grad_enabled():
            return
        tally = self.watch.tally
        mask = grpo_batch.completion_mask
        if self._host.overlong_filter:  # as ms-swift does after this pass
            mask = mask & ~grpo_batch.truncated_mask.unsqueeze(-1)
        tally.tokens = tally.tokens + mask.sum()
        mask = mask if forwarded is None else mask & forwarded
        tally.surprise = tally.surprise - (logps.detach() * mask).sum()
        tally.forwarded = tally.forwarded + mask.sum()

    def look_at_rollout(self, samples: Sequence[VisionSample]) -> None:
        """A generation batch has its advantages."""
        host = self._host
        if self.watch and host.model.training and host.accelerator.is_main_process:
            self.watch.rollout = self._rollout_facts(samples) or records.RolloutFacts()

    def end_step(
        self,
        grad_norm: float | LossValue | None,
        work: Counter[str],
        engine: records.EngineRecord | None,
    ) -> None:
        """An optimizer step is done; ms-swift says so once more after an epoch's last one.

        Args:
            grad_norm: Before clipping.
            work: Tokens of its passes; see `watch.phases.Bill`.
            engine: The comparison of engine and trainer, if one was due at this step.
        """
        host = self._host
        if not self.watch or host.state.global_step <= self._judged_step:
            return
        self._judged_step = host.state.global_step
        self._rest_in("between")
        norm = float(grad_norm) if grad_norm is not None else None
        dropped = norm is not None and math.isnan(norm)  # ms-swift's _fix_grad_norm_nan
        skipped = dropped or bool(host.accelerator.optimizer_step_was_skipped)
        self.watch.billing.work.update(work)
        if self.watch.end_step(host.state.global_step, norm, skipped, engine):
            host.control.should_training_stop = host.control.should_save = True
            host.control.should_evaluate = False

    @watches("figures of the rollout")
    def _rollout_facts(self, samples: Sequence[VisionSample]) -> records.RolloutFacts:
        """Of all ranks: ms-swift has gathered what it logs, groups one after the other."""
        host = self._host
        scores = host._rewards_per_func
        facts = self._facts(list(host._logs["completion"])[-len(scores) :], scores, samples)
        if facts.advantaged == 0 and samples:
            return replace(facts, example=described(samples[0], host.train_dataset))
        return facts

    def _facts(
        self, completions: Sequence[str], scores: Rewards, samples: Sequence[VisionSample]
    ) -> records.RolloutFacts:
        """Facts about the completions of all ranks, groups one after the other, with their scores.

        Reasons are those of this rank's ``samples``.
        """
        host = self._host
        size = 0 if host.dynamic_num_samples else host.num_generations
        figures = {
            name: float(values[-1])
            for name, values in host._metrics["train"].items()
            if values and values[-1] is not None
        }
        return records.RolloutFacts(
            groups=len(completions) // size if size else 0,
            rewards=tuple(self._reward_facts(scores, size, samples)),
            advantaged=rollout_facts.advantaged_share(
                list(host._logs["advantages"])[-len(scores) :], figures
            ),
            coverage=figures.get("reward_coverage"),
            zero_variance=figures.get("frac_reward_zero_std"),
            identical=rollout_facts.identical_share(completions, size),
            clipped=figures.get("completions/clipped_ratio"),
            empty=rollout_facts.empty_share(completions),
        )

    def _reward_facts(
        self, scores: Rewards, size: int, samples: Sequence[VisionSample]
    ) -> Iterator[records.RewardFacts]:
        """Facts of each reward that is for some of them."""
        scoring = self._host.scoring
        any_asked = any(report.completions for report in scoring.counts.values())
        for name, column in zip(self._host.reward_func_names, scores.T.tolist(), strict=False):
            counts = scoring.counts.get(name, Report())
            if any_asked and name in scoring.counts and not counts.completions:  # for no row of this batch
                continue
            facts = rollout_facts.reward_facts(
                name,
                column if name.startswith(PREFIX) else rollout_facts.meant_scores(column, size),
            )
            if counts.completions:
                facts = replace(
                    facts,
                    scored=max(facts.scored, counts.scored / counts.completions),
                    unread=counts.unread / counts.completions,
                )
            reasons = (sample.reason[name] for sample in samples if name in sample.reason)
            yield replace(facts, reason=counts.example if facts.scored > records.MOST else next(reasons, ""))
