"""Each reward tried on right, wrong and empty answers to the first rows of the data."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from swift_grpo_ext.doctor.check.facts import probing
from swift_grpo_ext.doctor.check.facts.rows import Sample
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.unknown import PLUGIN
from swift_grpo_ext.errors import SettingsError, SwiftGrpoExtError
from swift_grpo_ext.rewards import catalogue
from swift_grpo_ext.rewards.contract import Reward, Unscorable
from swift_grpo_ext.rewards.gold.columns import gold_completion, gold_from
from swift_grpo_ext.rewards.offline.scoring import with_image_sizes
from swift_grpo_ext.rewards.runtime.rules import SETTING, load_table

if TYPE_CHECKING:
    from swift_grpo_ext.doctor.check.facts.run import Run

_BUDGET = 35.0  # seconds for all rewards together; what is left after that is named and not run
_ROWS = 4
Parameters = dict[str, object]


@dataclass(frozen=True)
class OwnTrial:
    """A reward of ours, on the rows that the reward table gives it."""

    reward: Reward
    samples: tuple[Sample, ...] = ()  # rows of its tasks, with its gold columns
    tasks: tuple[str, ...] = ()  # its tasks in the reward table
    refusal: SettingsError | None = None  # why the reward table cannot be read
    # scores of the gold answer and of the best garbage, by row; None where the row cannot be scored
    pairs: tuple[tuple[float, float] | None, ...] = ()

    @property
    def scored(self) -> list[tuple[float, float]]:
        """The pairs of the rows that it scores."""
        return [pair for pair in self.pairs if pair]

    @property
    def prefers_gold(self) -> bool:
        """It scores the gold answer of every row above garbage."""
        return bool(self.scored) and all(gold > garbage for gold, garbage in self.scored)


@dataclass(frozen=True)
class Trial:
    """A reward of ms-swift or of a plugin, in a child process."""

    name: str
    ended: str = "value"  # how the child ended; "late" if no time was left to start it
    details: str = ""  # what it said, where it ended otherwise than with a value
    nearest: list[str] | None = None  # names like it, where none is called so
    slow: bool = False  # one completion is scored in time, all together are not
    probes: tuple[probing.Probe, ...] = ()
    scores: tuple[float | str | None, ...] | None = None  # a text for a value that is not finite

    @property
    def numbers(self) -> list[float]:
        """The scores that are numbers."""
        return [score for score in self.scores or () if isinstance(score, float)]

    @property
    def last_line(self) -> str:
        """The last line of what it said."""
        return (self.details.strip().splitlines() or ["no reason given"])[-1]

    @property
    def lacks_column(self) -> bool:
        """It was called without a column that it needs."""
        return self.fails and "missing" in self.last_line and "argument" in self.last_line

    @property
    def fails(self) -> bool:
        """It raised, or ended its process."""
        return self.ended not in ("value", "timeout", "late")

    @property
    def is_whole(self) -> bool:
        """It gave each completion a score, or said that it has none."""
        scores = self.scores or ()
        return 0 < len(scores) == len(self.probes) and str not in map(type, scores)

    @property
    def is_constant(self) -> bool:
        """It gives right, wrong and empty answers the same score."""
        numbers = self.numbers
        return bool(numbers) and max(numbers) - min(numbers) < 1e-9

    @property
    def margin(self) -> probing.Margin | None:
        """How the gold does; None where nothing was scored, or not one score for each completion."""
        if not self.is_whole or not self.numbers:
            return None
        return probing.margin_of(self.probes, cast("tuple[float | None, ...]", self.scores))

    @property
    def prefers_gold(self) -> bool:
        """It scores the gold answer above wrong answers and above garbage."""
        margin = self.margin
        return margin is not None and margin.best > 0 and margin.gold > margin.garbage


@dataclass(frozen=True)
class Trials:
    """What became of all rewards of a run."""

    samples: tuple[Sample, ...]
    own: tuple[OwnTrial, ...] = ()
    others: tuple[Trial, ...] = ()
    plugins: tuple[str, ...] = ()  # the user's own plugin files

    @property
    def some_prefers_gold(self) -> bool:
        """Some reward scores the gold answer above garbage: the others may look at something else."""
        own = any(trial.prefers_gold for trial in self.own)
        return own or any(trial.prefers_gold for trial in self.others)


def named_rewards(run: Run) -> list[str]:
    """The rewards of the command line whose names can be read; a rule reports the others."""
    named = run.arguments.reward_funcs or []
    return [name for name in named if not set("$, ") & set(name.partition(":")[0]) and _split(name)[0]]


def tried(run: Run, samples: list[Sample]) -> Trials:
    """Try the rewards of a run."""
    started = time.monotonic()
    job = probing.ProbeJob(_plugins(run), "rewards" in run.parts)
    own: list[OwnTrial] = []
    others: list[Trial] = []
    for name in dict.fromkeys(named_rewards(run)):
        base, parameters = _split(name)
        if base in catalogue.NAMES:
            if "rewards" in run.parts:
                own.append(_own_trial(run, catalogue.get_reward(base), samples, parameters))
        elif not samples and not job.plugins and name in host_table.names("reward_funcs"):
            continue  # it is there, and there is nothing to try it on
        elif time.monotonic() - started > _BUDGET:
            others.append(Trial(name, "late"))
        else:
            others.append(_trial(run, job, name, samples))
    return Trials(tuple(samples), tuple(own), tuple(others), job.plugins)


def _split(name: str) -> tuple[str, Parameters]:
    """A name and the parameters of its short form; "" for one that does not fit, which a rule reports."""
    try:
        return catalogue.split_form(name)
    except SwiftGrpoExtError:
        return "", {}


def _plugins(run: Run) -> tuple[str, ...]:
    """The user's own plugin files that are here."""
    paths = [run.find(file) for file in run.plugins if file != PLUGIN]
    here = [path.resolve() for path in paths if path and path.is_file()]
    registers_us = "from swift_grpo_ext import register"
    return tuple(
        str(path) for path in here if registers_us not in path.read_text(encoding="utf-8", errors="replace")
    )


def _own_trial(run: Run, reward: Reward, samples: list[Sample], given: Parameters) -> OwnTrial:
    text = run.environ.get(SETTING, "").strip()
    path = run.find(text) if text and not text.startswith("{") else None
    try:
        table = load_table(str(path or text))
        rule = table.rule(reward.name)
        reward.declared.checked(rule.parameters)
    except SettingsError as error:
        return OwnTrial(reward, refusal=error)
    own = [row for row in samples if not rule.tasks or rule.is_for(row.columns.get(table.task_column))]
    if rule.gold:
        own = [replace(row, columns=gold_from(row.columns, reward.gold, rule.gold)) for row in own]
    trial = OwnTrial(reward, tuple(own), tuple(rule.tasks or ()))
    if reward.cost != "inline" or not reward.gold:
        return trial
    parameters = {**rule.parameters, **given}
    return replace(trial, pairs=tuple(_gold_and_garbage(reward, row, parameters) for row in own))


def _gold_and_garbage(reward: Reward, sample: Sample, parameters: Parameters) -> tuple[float, float] | None:
    (columns,) = with_image_sizes([sample.columns], sample.folder, gold=True)
    try:
        gold = reward.outcome(gold_completion(reward, columns, **parameters), columns, parameters).score
    except Unscorable:
        return None
    if gold is None:
        return None
    garbage = (reward.outcome(text, columns, parameters).score for text in probing.GARBAGE)
    return gold, max(reward.low if score is None else score for score in garbage)


def _trial(run: Run, job: probing.ProbeJob, name: str, samples: list[Sample]) -> Trial:
    arguments = _arguments(run)
    probes = probing.probes(samples[:_ROWS])
    answer = probing.ask(job, name, arguments, probes[:1])  # one first: it shows whether it runs at all
    if answer.ended == "value" and probes and "scores" in answer.value:
        answer = probing.ask(job, name, arguments, probes)
        if answer.ended == "timeout":
            return Trial(name, slow=True, probes=tuple(probes))
    if answer.ended != "value":
        return Trial(name, answer.ended, str(answer.value))
    scores = answer.value.get("scores") if probes else None
    return Trial(
        name,
        nearest=answer.value.get("unknown"),
        probes=tuple(probes),
        scores=None if scores is None else tuple(scores),
    )


def _arguments(run: Run) -> dict[str, object]:
    """What reward classes read from ``args``, with the defaults that the host fills in."""
    plain = (str, int, float, bool, list, type(None))
    own = run.arguments
    given = ((name, value) for name, value in own.values.items() if own.is_known(name))
    values: dict[str, object] = {name: value for name, value in given if isinstance(value, plain)}
    for name in ("soft_max_length", "cosine_max_len"):
        if values.get(name) is None:
            values[name] = values.get("max_completion_length")
    return values
