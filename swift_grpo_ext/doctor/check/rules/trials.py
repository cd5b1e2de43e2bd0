"""The rewards as they did on the first rows: each runs, tells completions apart, and prefers the gold."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial

from swift_grpo_ext.doctor.check.facts import probing
from swift_grpo_ext.doctor.check.facts.rewards import Trial, named_rewards
from swift_grpo_ext.doctor.check.facts.rows import Sample
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import grpo_anywhere, table
from swift_grpo_ext.findings import ERROR, NOTE, WARNING, Problem
from swift_grpo_ext.rewards.offline.scoring import TOLERANCE

rule = partial(table.rule, scope=grpo_anywhere)


# Rewards of ms-swift that compare with a gold answer, in a form that they say themselves.
_READ_GOLD = ("accuracy", "cosine")
# Frames of a traceback that are not the user's.
_OF_OTHERS = re.compile("/lib/python|/swift_grpo_ext/")
_CHECK_GOLD = "check the column that holds the gold answer"


@rule(
    "reward-table",
    ERROR,
    symptoms="SettingsError of SWIFT_GRPO_EXT_REWARD_TABLE when training starts",
    cause="The reward table is read when the plugin is imported, and takes no unknown name or value.",
)
def _table(run: Run) -> Iterator[Problem]:
    for trial in run.trials.own:
        if trial.refusal:
            yield Problem(trial.refusal.what, trial.refusal.where, trial.refusal.fix)


@rule(
    "reward-not-run",
    NOTE,
    symptoms="check says nothing about a reward",
    cause="None of the first rows is of its tasks, or the rewards before it took all the time.",
    not_checked="a reward",
)
def _not_run(run: Run) -> Iterator[Problem]:
    rows = run.trials.samples
    for own in run.trials.own:
        if rows and not own.samples and not own.refusal:
            tasks = ", ".join(own.tasks)
            what = f"{own.reward.name}: none of the first {len(rows)} rows is of its tasks {tasks}"
            yield Problem(what, rows[0].where)


@rule(
    "reward-column",
    ERROR,
    symptoms="TypeError: __call__() missing 1 required positional argument: 'solution'",
    cause="The column is not in the data, or ms-swift renamed it: answer becomes response.",
)
def _column(run: Run) -> Iterator[Problem]:
    for own in run.trials.own:
        if own.gold and own.samples and not own.gold.scores:
            reason = own.gold.outcomes[0].reason
            what = f"{own.reward.name} scores no gold answer of {len(own.samples)} rows: {reason}"
            fix = f"a column {' or '.join(own.reward.gold)} that it can read"
            yield Problem(what, own.samples[0].where, _with_columns(fix, own.samples, own.reward.gold))
    for trial in run.trials.others:
        if trial.lacks_column:
            what = f"it needs a column that the data lacks: {trial.last_line}"
            wanted = re.findall(r"'(\w+)'", trial.last_line)[-1:]
            yield Problem(what, trial.name, _with_columns("add the column", run.trials.samples, wanted))


def _with_columns(fix: str, samples: Sequence[Sample], wanted: Sequence[str]) -> str:
    """A fix, with the columns that there are, and how ms-swift is told that one is the one that is wanted."""
    given = sorted({column for sample in samples for column in sample.columns} - set(probing.NOT_GOLD))
    if given and wanted and not set(given) & set(wanted):
        fix = f"--columns '{json.dumps({given[0]: wanted[0]})}', or {fix}"
    return f"{fix}; the columns are {', '.join(given) or 'none'}"


@rule(
    "reward-fails",
    ERROR,
    symptoms=(
        "TypeError, KeyError or IndexError inside a reward function; the other ranks wait",
        "ValueError: reward_function ... is not implemented in swift.rewards, with a plugin",
        "every completion of a batch has the same reward",
        "parameters never change although loss is finite; one reward was inf",
        "every completion is logged as not scored",
    ),
    cause="A reward function that raises on one rank leaves the others waiting in a gather; ms-swift "
    "broadcasts one score to all completions, and drops gradients that are not finite, without a word.",
    reports=("B3", "B4", "B7", "B8", "B9"),
)
def _fails(run: Run) -> Iterator[Problem]:
    for trial in run.trials.others:
        if trial.ended == "value" and trial.scores and not trial.numbers:
            yield Problem("it scores nothing", trial.name, _CHECK_GOLD)
        if trial.ended not in ("value", "timeout") and not trial.lacks_column:
            lines = [line.strip() for line in trial.details.splitlines()]
            frames = [line for line in lines if line.startswith("File ") and not _OF_OTHERS.search(line)]
            what = trial.last_line.rpartition("RewardError: ")[2]
            yield Problem(f"it fails: {what}", " ".join([trial.name, *frames[-1:]]), "fix it")


@rule(
    "reward-hangs",
    ERROR,
    symptoms=("the run stands still in rewards", "GPUs are idle while rewards are computed"),
    cause="A reward function waits for something without a time limit, or scores one after the other.",
    reports="B9",
)
def _hangs(run: Run) -> Iterator[Problem]:
    for trial in run.trials.others:
        if trial.ended == "timeout":
            several = len(trial.probes) > 1
            what = f"{len(trial.probes)} completions" if several else "one completion"
            fix = "give its calls a time limit, or set SWIFT_GRPO_EXT_REWARD_TIMEOUT"
            severity = WARNING if several else None  # a single one was scored in time
            yield Problem(f"{what}: {trial.last_line}", trial.name, fix, severity=severity)


@rule(
    "no-variance",
    ERROR,
    symptoms=(
        "reward_std is 0 in every step, with every reward",
        "rewards/.../std is 0; reward is the same number in every step",
    ),
    cause="Completions of a group are not told apart: `accuracy` reads numbers and formulas, no letters.",
    reports="B3",
)
def _no_variance(run: Run) -> Iterator[Problem]:
    names = list(dict.fromkeys(named_rewards(run.as_written)))
    constant = [trial for trial in run.trials.others if trial.is_constant]
    every = [trial.name for trial in constant] == names and not run.as_written.arguments.reward_model
    if constant and every:
        what = "no reward tells one completion from another, so every advantage is 0"
        severity = None
        if any(map(_may_read_another_form, constant)):
            what = f"{what}, unless they read a form of answer that was not tried"
            severity = WARNING
        fix = "print what the reward receives; look at its answer format and its columns"
        yield Problem(what, f"--reward_funcs {' '.join(names)}", fix, severity=severity)
        return
    for trial in constant:
        count = len(trial.numbers)
        what = f"it gives {trial.numbers[0]:g} to every one of {count} right, wrong and empty answers"
        severity = ERROR if trial.name in _READ_GOLD else WARNING
        yield Problem(
            what, trial.name, f"{_CHECK_GOLD}, and the form of answer that it reads", severity=severity
        )


def _may_read_another_form(trial: Trial) -> bool:
    """A reward that finds no answer gives 0 or a penalty; what praises garbage does not look at all."""
    return trial.name not in _READ_GOLD and trial.numbers[0] <= 0


@rule(
    "gold-does-not-win",
    ERROR,
    symptoms="reward rises and the answers get worse",
    cause="The reward scores garbage or wrong answers as high as the gold answer.",
)
def _gold_loses(run: Run) -> Iterator[Problem]:
    """A reward of a format or a length says nothing of the gold: it is judged where no other does."""
    for trial in run.trials.others:
        if trial.is_constant or not trial.numbers or trial.prefers_gold:
            continue
        best, gold = trial.best
        half = (max(trial.numbers) - min(trial.numbers)) / 2
        if best <= 0 and trial.name in _READ_GOLD:
            yield Problem("it never prefers the gold answer", trial.name, _CHECK_GOLD)
        elif best <= 0 and min(trial.margins, default=(0.0, 0.0))[0] <= -half:
            what = "it scores wrong answers higher than the gold answer"
            yield Problem(what, trial.name, "turn its comparison round")
        elif trial.garbage - gold >= (0 if best > 0 else 1e-9) and not run.trials.some_prefers_gold:
            what = f"it scores garbage {trial.garbage:g}, the gold answer {gold:g}"
            yield Problem(what, trial.name, "an empty answer must score least", severity=WARNING)


@rule(
    "gold-below-maximum",
    WARNING,
    symptoms="a right answer gets less than the full reward",
    cause="The gold answer, as it stands in the data, is not one that the reward takes for right.",
)
def _below_maximum(run: Run) -> Iterator[Problem]:
    for own in run.trials.own:
        if own.gold is None:
            continue
        high = own.reward.high - TOLERANCE
        below = [n for n, outcome in own.gold.pairs if outcome.score is not None and outcome.score < high]
        if below:
            rows = f"{len(below)} of {len(own.gold.scores)} rows"
            what = f"{own.reward.name} gives the gold answer less than its maximum in {rows}"
            severity = ERROR if max(own.gold.scores) <= own.reward.low else None
            where = own.samples[below[0].row - 1].where
            yield Problem(what, where, "swift-grpo-ext score --gold", severity=severity)
