"""Each reward tried on right, wrong and empty answers to the first rows of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from swift_grpo_ext.doctor.check.facts import probing
from swift_grpo_ext.doctor.check.facts.rows import Sample
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.errors import SettingsError, SwiftGrpoExtError
from swift_grpo_ext.rewards import catalogue
from swift_grpo_ext.rewards.contract import Reward
from swift_grpo_ext.rewards.offline.scoring import Scores, gold_samples, score, with_image_sizes
from swift_grpo_ext.rewards.runtime.of_catalogue import OfCatalogue
from swift_grpo_ext.rewards.runtime.rules import SETTING, load_table

if TYPE_CHECKING:
    from swift_grpo_ext.doctor.check.facts.run import Run

_ROWS = 4


@dataclass(frozen=True)
class OwnTrial:
    """A reward of ours, on the gold answers of the rows that the reward table gives it."""

    reward: Reward
    samples: tuple[Sample, ...] = ()  # rows of its tasks
    tasks: tuple[str, ...] = ()  # its tasks in the reward table
    refusal: SettingsError | None = None  # why the reward table cannot be read
    gold: Scores | None = None  # as `score --gold` has it; None where there is no gold, or no time for it

    @property
    def prefers_gold(self) -> bool:
        """It gives the gold answers its maximum."""
        return self.gold is not None and bool(self.gold.numbers) and not self.gold.wanting(gold=True)


@dataclass(frozen=True)
class Trial:
    """A reward of ms-swift or of a plugin, in a child process."""

    name: str
    ended: str  # how the child ended: `value`, `timeout`, or otherwise
    details: str  # what it said, where it ended otherwise than with a value
    probes: Sequence[probing.Probe]  # the completions that it was given last
    scores: Sequence[float | None] = ()

    @property
    def numbers(self) -> list[float]:
        """The scores there are."""
        return [score for score in self.scores if score is not None]

    @property
    def last_line(self) -> str:
        """The last line of what it said."""
        return (self.details.strip().splitlines() or ["no reason given"])[-1]

    @property
    def lacks_column(self) -> bool:
        """It was called without a column that it needs."""
        return (
            self.ended in ("error", "refused")
            and "missing" in self.last_line
            and "argument" in self.last_line
        )

    @property
    def is_constant(self) -> bool:
        """It gives right, wrong and empty answers the same score."""
        return bool(self.numbers) and max(self.numbers) - min(self.numbers) < 1e-9

    def _mean(self, kind: str, way: tuple[str, int] = ("", 0)) -> float:
        """Mean score of the completions of a kind; one that is not scored counts as 0."""
        pairs = zip(self.probes, self.scores, strict=True)
        chosen = [score or 0.0 for probe, score in pairs if (probe.kind, probe.way) == (kind, way)]
        return sum(chosen) / max(1, len(chosen))

    @cached_property
    def margins(self) -> list[tuple[float, float]]:
        """For each way to write an answer: the mean of right minus wrong ones, and that of right ones."""
        ways = dict.fromkeys(probe.way for probe in self.probes if probe.kind == "right")
        means = [(self._mean("right", way), self._mean("wrong", way)) for way in ways]
        return [(right - wrong, right) for right, wrong in means]

    @property
    def best(self) -> tuple[float, float]:
        """The margin, 0 at least, and the right answers' mean in the way of writing that suits it best."""
        return max(((m if m > 1e-9 else 0.0, gold) for m, gold in self.margins), default=(0.0, math.inf))

    @property
    def garbage(self) -> float:
        """Mean score of the kind of garbage that it likes best."""
        return max(self._mean("garbage", (text, 0)) for text in probing.GARBAGE)

    @property
    def prefers_gold(self) -> bool:
        """It scores the gold answer above wrong answers and above garbage."""
        margin, gold = self.best if self.numbers else (0.0, 0.0)
        return margin > 0 and gold > self.garbage


@dataclass(frozen=True)
class Trials:
    """What became of all rewards of a run."""

    samples: tuple[Sample, ...]
    own: tuple[OwnTrial, ...] = ()
    others: tuple[Trial, ...] = ()

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
    """Try the rewards of a run; a name that only a plugin which is not here may register is left."""
    registers_us = "from swift_grpo_ext import register"
    here = [plugin for plugin in run.plugins if plugin.text and registers_us not in plugin.text]
    files = tuple(str(plugin.path.resolve()) for plugin in here if plugin.path)
    job = probing.ProbeJob(files, "rewards" in run.parts)
    of_the_host = host_table.names("reward_funcs")
    own: list[OwnTrial] = []
    others: list[Trial] = []
    for name in dict.fromkeys(named_rewards(run)):
        if name.partition(":")[0] in catalogue.NAMES:
            if "rewards" in run.parts:
                own.append(_own_trial(run, name, samples))
        elif files or (samples and name in of_the_host):
            others.append(_trial(run, job, name, samples))
    return Trials(tuple(samples), tuple(own), tuple(others))


def _own_trial(run: Run, name: str, samples: list[Sample]) -> OwnTrial:
    """The gold answers through a reward of ours, as ``swift-grpo-ext score --gold`` would."""
    base, given = catalogue.split_form(name)
    reward = catalogue.get_reward(base)
    text = run.environ.get(SETTING, "").strip()
    path = run.find(text) if text and not text.startswith("{") else None
    try:
        table = load_table(str(path or text))
        OfCatalogue(reward, table=table, given=given)
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
    """A single completion first, which shows whether it runs at all, then all of them."""
    probes = probing.probes(samples[:_ROWS])
    for chosen in (probes[:1], probes):
        answer = probing.ask(job, name, _arguments(run), chosen)
        if answer.ended != "value":
            return Trial(name, answer.ended, answer.traceback or str(answer.value), chosen)
    return Trial(name, answer.ended, "", probes, answer.value)


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
