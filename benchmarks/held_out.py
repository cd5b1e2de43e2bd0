"""Do held-out rewards find the best checkpoint, and stop a run that collapses, and only such a run?

    python benchmarks/held_out.py --kind rate --seeds 1 2 3 --to output/held_out
    python benchmarks/held_out.py --kind length --seeds 1 2 3 --to output/held_out
    python benchmarks/held_out.py --kind healthy --seeds 1 2 3 --to output/held_out
    python benchmarks/held_out.py --summary --to output/held_out
    python benchmarks/held_out.py --replay 2 --to output/held_out

Each run is ms-swift's own, in this process, on a CPU: the quickstart's tiny Qwen2.5-VL that reads half of
the digits after its warm start by labels. From step 40 on, in ``rate`` the learning rate is 100 times as
high, and in ``length`` a second reward pays for length, three times as much as the first pays for the right
digit. ``healthy``: 300 steps of neither. The seed draws batches and completions.

A run evaluates on 100 held-out images. The truth is another 260 images, that no run sees: every checkpoint of
a collapsing run answers them greedily, by transformers alone. A checkpoint is truly below another if the
difference of their answers is, with its whole 95 % interval (paired, 260 rows). The fall is the first of the
last evaluations that are all truly below the best one.

``--patience 0`` stops no run, so that its whole curve is recorded; ``--replay N`` says where today's rule
stops each of the recorded runs, which sees nothing but the evaluations: nothing is trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from swift_grpo_ext import testing

os.environ.update(testing.cpu_environment(), HF_HUB_DISABLE_PROGRESS_BARS="1")

from examples.quickstart import training
from examples.quickstart.evaluation import greedy_answers
from examples.quickstart.setting import DEFAULT, SETTINGS, SIZES
from swift_grpo_ext.watch.held_out import TOTAL, Evaluation, HeldOutHistory, read_evaluations

KINDS = ("rate", "length", "healthy")
STEPS = {"rate": 80, "length": 110, "healthy": 300}
EVERY = {"rate": 10, "length": 10, "healthy": 20}  # steps between two evaluations
COLLAPSE = 40  # the step from which it collapses
PATIENCE = 2  # evaluations: SWIFT_GRPO_EXT_HELD_OUT_STOP
ROWS = 100  # that a run is evaluated on
MOST_AFTER_FALL = 3  # evaluations

# Four prompts of four completions a step.
ARGUMENTS: dict[str, Any] = {
    "per_device_train_batch_size": 16,
    "num_generations": 4,
    "learning_rate": 3e-4,
    "lr_scheduler_type": "constant",
    "warmup_ratio": 0,
    "beta": 0,
    "max_completion_length": 4,
    "temperature": 1.0,
    "reward_funcs": "ext_choice",
    "log_completions": False,
    "eval_strategy": "steps",
    "per_device_eval_batch_size": ROWS,
}
OF_KIND: dict[str, dict[str, Any]] = {
    "rate": {"callbacks": "too_high"},
    "length": {
        "reward_funcs": ["ext_choice", "pays_length"],
        "reward_weights": [1, 3],
        "metric_for_best_model": "ext_choice",
    },
    "healthy": {},
}


@dataclass(frozen=True)
class Outcome:
    """What became of one run."""

    kind: str
    seed: int
    steps: int  # that were done
    best: int  # step of the checkpoint that the run calls the best
    truth: dict[int, list[float]]  # by step: 1 for each true held-out row that is read right
    seconds: float

    @property
    def stopped(self) -> bool:
        """Whether it ended before its last step."""
        return self.steps < STEPS[self.kind]

    def below(self, step: int, other: int) -> bool:
        """Whether the true answers of a step are worse than another's by more than the interval."""
        change = _of_truth(step, self.truth[step]).change_since(_of_truth(other, self.truth[other]))
        return change is not None and change.high < 0

    @property
    def truly_best(self) -> int:
        """The step whose true answers are the best."""
        return max(self.truth, key=lambda step: (sum(self.truth[step]), -step))

    @property
    def fall(self) -> int | None:
        """The first of the last evaluations that are all truly below the best; None if the last is not."""
        lasting = None
        for step in sorted(self.truth, reverse=True):
            if not self.below(step, self.truly_best) or step < self.truly_best:
                break
            lasting = step
        return lasting

    @property
    def evaluations_after_the_fall(self) -> float:
        """How many the run went on for; 0 where it was stopped before a fall, for exploited rewards."""
        return (self.steps - self.fall) / EVERY[self.kind] if self.fall else 0

    def line(self) -> str:
        """In words."""
        ended = f"stopped at {self.steps}" if self.stopped else f"not stopped in {self.steps}"
        if not self.truth:
            return f"{self.kind} seed {self.seed}: {ended}; best {self.best}; {self.seconds:.0f} s"
        accuracy = {step: sum(row) / len(row) for step, row in self.truth.items()}
        fall = "no fall" if self.fall is None else f"fell at {self.fall}"
        equal = "its interval below" if self.below(self.best, self.truly_best) else "within its interval of"
        return (
            f"{self.kind} seed {self.seed}: {fall}, {ended}; best {self.best} "
            f"({100 * accuracy[self.best]:.1f} %) {equal} the true best {self.truly_best} "
            f"({100 * accuracy[self.truly_best]:.1f} %); {self.seconds:.0f} s"
        )


def _of_truth(step: int, right: Sequence[float]) -> Evaluation:
    return Evaluation(step, {"reward": tuple(right)})


def register() -> None:
    """Put the reward and the callback that make a run collapse where ms-swift looks for them."""
    from swift.callbacks import TrainerCallback, callbacks_map
    from swift.rewards import ORM, orms

    class PaysLength(ORM):  # type: ignore[misc]
        """From a step on a completion's characters, as a share of four; 0 before."""

        def __call__(self, completions: list[str], trainer_state: Any, **_columns: object) -> list[float]:
            pays = trainer_state.global_step >= COLLAPSE
            return [pays * min(len(completion) / 4, 1.0) for completion in completions]

    class TooHigh(TrainerCallback):
        """The learning rate is 100 times as high from a step on."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            for group in kwargs["optimizer"].param_groups:
                group["lr"] = args.learning_rate * (100 if state.global_step >= COLLAPSE else 1)

    orms["pays_length"] = PaysLength
    callbacks_map["too_high"] = TooHigh


def warm_start(folder: Path) -> tuple[Path, testing.Digits]:
    """The quickstart's checkpoint that knows half of the digits, and its data, made once for all runs."""
    setting = SETTINGS[DEFAULT]
    digits = testing.digits_dataset(folder / "digits", seed=setting.seed)
    if not any(folder.glob("sft/v*/checkpoint-*")):
        random = testing.tiny_checkpoint(setting.family, folder / "random", seed=setting.seed, **SIZES)
        training.warm_start(setting, random, digits.train, folder)
    return next(folder.glob("sft/v*/checkpoint-*")), digits


def run(kind: str, seed: int, folder: Path, patience: int = PATIENCE) -> Outcome:
    """One run, and the truth about each of its checkpoints, which are deleted."""
    model, digits = warm_start(folder)
    rows = digits.test.read_text(encoding="utf-8").splitlines(keepends=True)
    held_out = folder / "held_out.jsonl"
    held_out.write_text("".join(rows[:ROWS]), encoding="utf-8")
    truth = [json.loads(row) for row in rows[ROWS:]]
    output = folder / f"{kind}{seed}"
    shutil.rmtree(output, ignore_errors=True)
    every = {"eval_steps": EVERY[kind], "save_steps": EVERY[kind], "max_steps": STEPS[kind], "seed": seed}
    arguments = {**training.TRAINING, **ARGUMENTS, **OF_KIND[kind], **every}
    switches = {"HELD_OUT_SHARE": "1", "HELD_OUT_STOP": str(patience), "DISABLE": "callbacks.report"}
    switches |= {"AGREE_EVERY": "0"}
    began = time.monotonic()
    testing.run_in_process(
        "rlhf",
        testing.grpo_arguments(model, digits.train, output, val_dataset=held_out, **arguments),
        {f"SWIFT_GRPO_EXT_{name}": value for name, value in switches.items()},
    )
    seconds = time.monotonic() - began
    version = testing.newest_version(output)
    evaluations = read_evaluations(version)
    judged = evaluations if kind != "healthy" else ()  # of these it is asked whether they stop, nothing else
    answers = {one.step: greedy_answers(version / f"checkpoint-{one.step}", truth) for one in judged}
    right = {
        step: [float(answer == row["solution"]) for answer, row in zip(given, truth, strict=True)]
        for step, given in answers.items()
    }
    state = json.loads((version / f"checkpoint-{evaluations[-1].step}/trainer_state.json").read_text())
    outcome = Outcome(
        kind=kind,
        seed=seed,
        steps=evaluations[-1].step,
        best=state["best_global_step"],
        truth=right,
        seconds=seconds,
    )
    for checkpoint in version.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    return outcome


def outcomes(folder: Path) -> list[Outcome]:
    """All runs so far."""
    path = folder / "outcomes.jsonl"
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines()) if path.is_file() else ()
    found = {}
    for row in rows:
        truth = {int(step): right for step, right in row["truth"].items()}
        found[row["kind"], row["seed"]] = Outcome(**{**row, "truth": truth})
    return list(found.values())


def replayed(outcome: Outcome, folder: Path, patience: int) -> Outcome:
    """The run as today's rule would have ended it, from its recorded evaluations."""
    history = HeldOutHistory(str(OF_KIND[outcome.kind].get("metric_for_best_model", TOTAL)))
    for evaluation in read_evaluations(testing.newest_version(folder / f"{outcome.kind}{outcome.seed}")):
        history.add(evaluation)
        if history.why_stop(patience):
            break
    best = history.best
    return replace(outcome, steps=history.evaluations[-1].step, best=best.step if best else 0)


def states_the_truth(outcome: Outcome, folder: Path) -> bool:
    """Whether the interval that a run states of its best checkpoint holds the highest true accuracy."""
    evaluations = read_evaluations(testing.newest_version(folder / f"{outcome.kind}{outcome.seed}"))
    history = HeldOutHistory(
        "ext_choice", evaluations=[one for one in evaluations if one.step <= outcome.steps]
    )
    stated = history.best_interval
    highest = sum(outcome.truth[outcome.truly_best]) / len(outcome.truth[outcome.truly_best])
    return stated is not None and stated.low <= highest <= stated.high


def summary(runs: Sequence[Outcome], folder: Path) -> str:
    """The figures, each with the number of runs that it is of."""
    collapsing = [one for one in runs if one.kind != "healthy"]
    healthy = [one for one in runs if one.kind == "healthy"]
    best = sum(not one.below(one.best, one.truly_best) for one in collapsing)
    stated = sum(states_the_truth(one, folder) for one in collapsing)
    in_time = sum(one.stopped and one.evaluations_after_the_fall <= MOST_AFTER_FALL for one in collapsing)
    return (
        f"best checkpoint within its interval of the true best: {best} of {len(collapsing)} collapsing runs\n"
        f"highest true accuracy inside the interval that the run states: {stated} of {len(collapsing)}\n"
        f"stopped at most {MOST_AFTER_FALL} evaluations after the fall in {in_time} of {len(collapsing)}\n"
        f"healthy runs of {STEPS['healthy']} steps stopped: {sum(one.stopped for one in healthy)} of "
        f"{len(healthy)}"
    )


def main() -> None:
    """Entry of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[])
    parser.add_argument("--to", type=Path, default=Path("output/held_out"))
    parser.add_argument("--patience", type=int, default=PATIENCE, help="of the rule; 0: whole curves")
    parser.add_argument("--replay", type=int, default=0, help="evaluations: the summary of today's rule")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    folder = options.to.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    register()
    for seed in options.seeds:
        if (options.kind, seed) in {(one.kind, one.seed) for one in outcomes(folder)}:
            continue  # so that it can be done in pieces
        outcome = run(options.kind, seed, folder, options.patience)
        with open(folder / "outcomes.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")
        print(outcome.line(), flush=True)
    if options.summary or options.replay:
        runs = outcomes(folder)
        if options.replay:
            runs = [replayed(one, folder, options.replay) for one in runs]
        print("\n".join(one.line() for one in runs))
        print(summary(runs, folder))


if __name__ == "__main__":
    main()
