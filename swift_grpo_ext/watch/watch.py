"""The monitors of one rank: they collect, sum over the ranks once a step, judge and report."""

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from swift.callbacks import TrainerCallback
from swift.utils import get_logger
from transformers import TrainerControl, TrainerState, TrainingArguments

from swift_grpo_ext.errors import DeadRunError, RefusedError
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.version import __version__
from swift_grpo_ext.watch.causes import Cause
from swift_grpo_ext.watch.checkpoints import newest_whole
from swift_grpo_ext.watch.ending import EndRequest
from swift_grpo_ext.watch.guard import watches
from swift_grpo_ext.watch.journal import Journal
from swift_grpo_ext.watch.learning import LearningMonitor
from swift_grpo_ext.watch.movement import Movement, Sampler, local_masters, local_parameters
from swift_grpo_ext.watch.phases import Bill, Billing, Phases
from swift_grpo_ext.watch.records import EngineRecord, RolloutFacts, StepFacts
from swift_grpo_ext.watch.resume_command import how_to_resume
from swift_grpo_ext.watch.stall import EXIT_CODE, Watchdog
from swift_grpo_ext.watch.watched import Tally, Watched, add_scalars, run_facts

PATIENCE = 3  # steps in a row that most faults must last before they are reported
UNSCORED_STEPS = 20  # steps in a row without a scored completion, after which the run ends
NOTHING_SCORED = os.EX_DATAERR  # exit status of a run that learned nothing because nothing was scored

logger = get_logger()


class EvaluationLeft(Exception):
    """The run was asked to end while it evaluated."""


class NothingTrained(Exception):
    """The run was asked to end while it evaluated before its first step (``--eval_on_start``)."""


class Watch(TrainerCallback):
    """One rank's monitors, as a callback of ms-swift. The first rank reports the verdicts."""

    _weights: Sampler  # set when training begins
    _masters: Sampler

    def __init__(self, args: TrainingArguments, trainer: Watched) -> None:
        super().__init__(args, trainer)
        self.guard = trainer.guard
        self.monitor: LearningMonitor | None = None  # set when training begins
        self._settings = settings = current_settings()
        self._trainer = trainer
        # With Megatron the last rank, which has the loss, logs.
        self._first = getattr(args, "speaks", args.process_index == 0)
        self.phases = Phases()
        self.billing = Billing()
        self.journal = Journal(args.output_dir, args.process_index)
        self.tally = Tally()
        self.rollout = RolloutFacts()
        self._engine = EngineRecord()  # the newest comparison
        self._learning_rate: float | None = None
        self._stopped_dead = False
        self._unscored_steps = 0  # in a row
        self._ever_scored = False
        self.exit_status = 0  # of the process; not 0 if it was asked to end early, or nothing was scored
        self._begun_at = 0  # steps taken before this run
        self._end_request = EndRequest()
        self._watchdog = Watchdog(
            self.phases,
            self.journal,
            args.world_size,
            fixed_limit=settings.stall_seconds,
            step=lambda: int(trainer.state.global_step),
            also=self._end_request.look_at_launcher,
            abort=self._abort if settings.on_stall == "abort" else None,
            failed=partial(self.guard.turn_off, "watchdog"),
        )

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Start when model and optimizer are ready.

        Raises:
            RefusedError: No parameter is trained.
        """
        self.begin(state, trains=any(each.requires_grad for each in self._trainer.model.parameters()))

    def begin(self, state: TrainerState, trains: bool) -> None:
        """Start; ``trains`` is True if some parameter is trained, on this rank or another.

        Raises:
            RefusedError: No parameter is trained.
        """
        self._begun_at = state.global_step
        self._begin()
        if not trains:
            raise RefusedError(
                "no parameter is trained: all are frozen",
                where="--freeze_llm, --freeze_vit, --freeze_aligner, --freeze_parameters_ratio",
                fix="leave one of them trainable, or use --tuner_type lora",
            )
        self.guard.run("watchdog", self._watchdog.start)
        self._end_request.listen()

    @watches("start of the monitors")
    def _begin(self) -> None:
        trainer = self._trainer
        self._weights = Sampler(lambda: local_parameters(trainer.model))
        self._masters = Sampler(lambda: local_masters(trainer.optimizer))
        self.monitor = LearningMonitor(run_facts(trainer), PATIENCE)

    @watches("learning rate")
    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Note the learning rate of the step that begins, which the scheduler has already set."""
        if self._learning_rate is None:
            self._announce()
        self._learning_rate = max(float(group["lr"]) for group in self._trainer.optimizer.param_groups)

    def _announce(self) -> None:
        """Log the first step, the rewards and the report: ms-swift has logged much since the first line."""
        step = self._begun_at + 1
        rewards = " ".join(self._trainer.scoring.reward_names)
        report = Path(self._trainer.args.output_dir) / "report.html"
        if self._first:
            logger.info(
                f"swift-grpo-ext {__version__}: step {step} begins; rewards {rewards}; report {report}"
            )

    def end_step(
        self, step: int, grad_norm: float | None, skipped: bool, engine: EngineRecord | None
    ) -> bool:
        """Sum the counts over the ranks after an optimizer step and judge. True if the run is to end now.

        ``engine`` is the comparison with the engine, if one was due at this step.
        """
        self._engine = engine or self._engine
        self._count_movement()
        counted = self.tally
        self.tally = Tally()
        stops = self._first and self._settings.on_dead == "stop"
        total = replace(
            counted,
            skipped=float(skipped),
            scored=float(self._first and self.rollout.is_scored),
            dead=float(bool(stops and self.monitor and self.monitor.should_stop)),
            asked_to_end=float(bool(self._end_request.reason)),
        ).over_ranks(self._trainer.args.device)
        self._judge(step, grad_norm, total)
        self._ever_scored = self._ever_scored or total.scored > 0
        self._unscored_steps = 0 if total.scored else self._unscored_steps + 1
        self._stopped_dead = self._stopped_dead or total.dead > 0
        if total.asked_to_end:
            self._stop(step)
        return self._stopped_dead or total.asked_to_end > 0 or self._unscored_steps >= UNSCORED_STEPS

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """After each evaluation batch, end the run if a rank was asked to.

        Raises:
            EvaluationLeft: A rank was asked to end: the last step is saved, and the run ends.
            NothingTrained: The same before the first step, with nothing to save.
        """
        mine = Tally(asked_to_end=len(self._end_request.reason))
        if not mine.over_ranks(args.device).asked_to_end:
            return
        self._stop(state.global_step)
        if state.global_step == self._begun_at:
            raise NothingTrained
        control.should_evaluate = False
        control.should_save = control.should_training_stop = True
        raise EvaluationLeft

    def _stop(self, step: int) -> None:
        """Record that the run was asked to end after this step, on this rank or another."""
        if step < self._trainer.state.max_steps or step == self._begun_at:
            self.exit_status = self._end_request.exit_status
        if self._first:
            self.journal.add(
                "stopped",
                step=step,
                signal=self._end_request.reason or "on another rank",
                checkpoint=f"checkpoint-{step}" if step > self._begun_at else "",
                exit_status=self.exit_status,
            )

    @watches("movement of parameters")
    def _count_movement(self) -> None:
        if not self.monitor:  # it did not start, which has been reported
            return
        weights = self._weights.look()
        masters = self._masters.look()
        self.tally = replace(
            self.tally, **vars(weights), masters=masters.elements, masters_moved=masters.moved
        )

    @watches("verdict")
    def _judge(self, step: int, grad_norm: float | None, total: Tally) -> None:
        if not self.monitor:
            return
        facts = self._facts(step, grad_norm, total)
        seconds = self.phases.drain()
        add_scalars(self._trainer._metrics["train"], facts, seconds)
        self.tell(self.monitor.add(facts))
        self._charge(step, self.billing.add(seconds), last=False)

    def _charge(self, step: int, bill: Bill | None, last: bool) -> None:
        """Write a bill to the journal for the report; log the first and the last one, too."""
        if bill and self._first:
            self.journal.add("bill", step=step, **bill._asdict())
            if last or step - self._begun_at == bill.steps:
                logger.info(f"swift-grpo-ext [bill] {bill}")

    def _abort(self) -> None:
        """End a run that hangs. Called in the watchdog's thread, on every rank that is over the limit."""
        whole = newest_whole(Path(self._trainer.args.output_dir))
        text = f"swift-grpo-ext [stall] the run ends; newest whole checkpoint: {whole}"
        print(text, file=sys.stderr, flush=True)
        os._exit(EXIT_CODE)  # without waiting for other threads

    def tell(self, cause: Cause | None) -> None:
        """Log the cause, and write it to the journal."""
        if self._first and self.monitor and cause:
            step = self.monitor.step
            logger.warning(f"swift-grpo-ext [{cause.id}] at step {step}: {cause.text}")
            level = "error" if cause.dead else "warning"
            self.journal.add("verdict", step=step, id=cause.id, level=level, text=cause.text)

    @watches("events")
    def failed(self, error: BaseException) -> None:
        """Write the error that ended training to the journal."""
        self.journal.add("failed", text=f"{type(error).__name__}: {error}"[:4000])

    def close(self) -> None:
        """Stop the watchdog and restore the signals, however training ended."""
        if self._watchdog.is_alive():  # even if its part is off: no thread outlives its run
            self._watchdog.stop()
        self._end_request.leave()

    def end(self) -> None:
        """Finish after training without an error, and set `exit_status`.

        Raises:
            DeadRunError: It was stopped because it could not learn.
        """
        if self._watchdog.ident is None or self.monitor is None:  # training has not begun
            return
        self._judge_at_end()
        if self.exit_status and self._trainer.args.should_save:
            self._say_how_to_resume()
        cause = self.monitor.cause
        step = self._trainer.state.global_step
        if self._stopped_dead:
            raise DeadRunError(
                cause.text if cause else "the run could not learn",
                where=f"stopped at step {self.monitor.step}",
                fix="SWIFT_GRPO_EXT_ON_DEAD=warn lets such runs go on",
            )
        never = step > self._begun_at and not self._ever_scored
        if not self.exit_status and (never or self._unscored_steps >= UNSCORED_STEPS):
            self.exit_status = NOTHING_SCORED
            if self._first:
                what = cause.text if cause else f"no completion was scored for {self._unscored_steps} steps"
                print(f"swift-grpo-ext: the run ends at step {step}: {what}", file=sys.stderr, flush=True)

    @watches("how to resume")
    def _say_how_to_resume(self) -> None:
        args = self._trainer.args
        step = self._trainer.state.global_step
        if step == self._begun_at:
            print("swift-grpo-ext: the run ended before its first step: nothing to save", file=sys.stderr)
            return
        checkpoint = Path(args.output_dir) / f"checkpoint-{step}"
        command = how_to_resume(checkpoint, args.save_only_model, sys.argv, os.environ)
        self._end_request.say_last(
            f"swift-grpo-ext: the run ended after a saved step; to resume it:\n{command}"
        )

    @watches("verdict")
    def _judge_at_end(self) -> None:
        assert self.monitor
        self.tell(self.monitor.at_end())
        self._charge(int(self._trainer.state.global_step), self.billing.close(), last=True)

    def _facts(self, step: int, grad_norm: float | None, total: Tally) -> StepFacts:
        weights = Movement(total.elements, total.moved)
        return StepFacts(
            step=step,
            learning_rate=self._learning_rate,
            grad_norm=grad_norm,
            skipped=total.skipped > 0,
            moved=weights.share,
            master_moved=Movement(total.masters, total.masters_moved).share,
            tokens=round(total.tokens),
            entropy=total.surprise / total.forwarded if total.forwarded else None,
            rollout=self.rollout,
            engine=self._engine,
        )
