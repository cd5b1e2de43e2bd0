"""Each reward tried on right, wrong and empty answers to the first rows of the data."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from swift_grpo_ext.doctor.check.facts import probing
from swift_grpo_ext.doctor.check.facts.rows import Sample
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.errors import SettingsError, SwiftGrpoExtError
from swift_grpo_ext.rewards import catalogue
from swift_grpo_ext.rewards.contract import Reward
from swift_grpo_ext.rewards.offline.scoring import Scored, gold_samples, score, with_image_sizes
from swift_grpo_ext.rewards.runtime.rules import SETTING, load_table
from swift_grpo_ext.rewards.runtime.runner import Runner

if TYPE_CHECKING:
    from swift_grpo_ext.doctor.check.facts.run import Run

_BUDGET = 35.0  # seconds for all rewards together; what is left after that is named and not run
_ROWS = 4


@dataclass(frozen=True)
class OwnTrial:
    """A reward of ours, on the gold answers of the rows that the reward table gives it."""

    reward: Reward
    samples: tuple[Sample, ...] = ()  # rows of its tasks
    tasks: tuple[str, ...] = ()  # its tasks in the reward table
    refusal: SettingsError | None = None  # why the reward table cannot be read
    gold: Scored | None = None  # as `score --gold` has it; None where there is no gold, or no time for it

    @property
    def prefers_gold(self) -> bool:
        """It gives the gold answers its maximum."""
        return self.gold is not None and bool(self.gold.scores) and not self.gold.wanting(gold=True)


@dataclass(frozen=True)
class Trial:
    """A reward of ms-swift or of a plugin, in a child process."""

    name: str
    ended: str = "value"  # how the child ended; "late" if no time was left to start it
    details: str = ""  # what it said, where it ended otherwise than with a value
    nearest: list[str] | None = None  # names like it, where none is called so
    probes: tuple[probing.Probe, ...] = ()  # the completions that it was given last
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
        return self.is_whole and bool(numbers) and max(numbers) - min(numbers) < 1e-9

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
    return [name for name in named if not set("$, ") & set(name.partition(":")[0]) and _is_form(name)]


def _is_form(name: str) -> bool:
    """Whether the parameters behind a name fit it."""
    try:
        return bool(catalogue.split_form(name))
    except SwiftGrpoExtError:
        return False


def tried(run: Run, samples: list[Sample]) -> Trials:
    """Try the rewards of a run."""
    started = time.monotonic()
    registers_us = "from swift_grpo_ext import register"
    here = [plugin for plugin in run.plugins if plugin.text and registers_us not in plugin.text]
    own_files = [str(plugin.path.resolve()) for plugin in here if plugin.path]
    job = probing.ProbeJob(tuple(own_files), "rewards" in run.parts)
    own: list[OwnTrial] = []
    others: list[Trial] = []
    for name in dict.fromkeys(named_rewards(run)):
        if name.partition(":")[0] in catalogue.NAMES:
            if "rewards" in run.parts:
                own.append(_own_trial(run, name, samples))
        elif not samples and not job.plugins and name in host_table.names("reward_funcs"):
            continue  # it is there, and there is nothing to try it on
        elif time.monotonic() - started > _BUDGET:
            others.append(Trial(name, "late"))
        else:
            others.append(_trial(run, job, name, samples))
    return Trials(tuple(samples), tuple(own), tuple(others), job.plugins)


def _own_trial(run: Run, name: str, samples: list[Sample]) -> OwnTrial:
    """The gold answers through a reward of ours, as ``swift-grpo-ext score --gold`` would."""
    base, given = catalogue.split_form(name)
    reward = catalogue.get_reward(base)
    text = run.environ.get(SETTING, "").strip()
    path = run.find(text) if text and not text.startswith("{") else None
    try:
        table = load_table(str(path or text))
        Runner(reward, table=table, given=given)
    except SettingsError as error:
        return OwnTrial(reward, refusal=error)
    tasks = table.rule(base).tasks
    own = [row for row in samples if not tasks or str(row.columns.get(table.task_column)) in tasks]
    trial = OwnTrial(reward, tuple(own), tasks)
    if reward.cost != "inline" or not reward.gold:
        return trial
    rows = [with_image_sizes([row.columns], row.folder, gold=True)[0] for row in own]
    return replace(trial, gold=score(name, gold_samples(name, rows, table), table))


def _trial(run: Run, job: probing.ProbeJob, name: str, samples: list[Sample]) -> Trial:
    arguments = _arguments(run)
    probes = probing.probes(samples[:_ROWS])
    trial = _asked(job, name, arguments, probes[:1])  # one first: it shows whether it runs at all
    return _asked(job, name, arguments, probes) if trial.scores is not None else trial


def _asked(
    job: probing.ProbeJob, name: str, arguments: dict[str, object], probes: list[probing.Probe]
) -> Trial:
    answer = probing.ask(job, name, arguments, probes)
    if answer.ended != "value":
        return Trial(name, answer.ended, str(answer.value), probes=tuple(probes))
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
    values: dict[str, object] = {
        name: value for name, value in own.values.items() if own.is_known(name) and isinstance(value, plain)
    }
    for name in ("soft_max_length", "cosine_max_len"):
        if values.get(name) is None:
            values[name] = values.get("max_completion_length")
    return values
