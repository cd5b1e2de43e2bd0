"""Rewards in the trainer: each takes the same way on every rank, and all ranks judge them together."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from accelerate.utils import gather_object
from torch import nn

from swift_grpo_ext.ms_swift.shared import TransformersEngine, get_logger
from swift_grpo_ext.once import Once
from swift_grpo_ext.rewards.forms import form_not_asked, system_text
from swift_grpo_ext.rewards.registration import require_known
from swift_grpo_ext.rewards.runtime.budget import Budget, added, metrics
from swift_grpo_ext.rewards.runtime.ledger import Report, announce, drain_all
from swift_grpo_ext.rewards.runtime.of_catalogue import OfCatalogue
from swift_grpo_ext.rewards.runtime.rules import SETTING, RewardTable, load_table
from swift_grpo_ext.rewards.runtime.scored import AwaitedScored, Scored, waits
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.baselines import Baselines
from swift_grpo_ext.trainer.host import Host, metrics_of
from swift_grpo_ext.trainer.samples import Rewards, VisionSample

logger = get_logger()
RewardFunction: TypeAlias = str | nn.Module | Callable[..., Any]  # a name, a model, or the function
RewardFunctions: TypeAlias = RewardFunction | list[RewardFunction]
_FOR_A_JUDGE = ("messages", "images", "videos", "audios")
UNREAD = 0.1  # share of a batch that is not in a reward's form, above which the run says so


class Scoring:
    """Rewards of a run, and the advantages that follow from them.

    A function that raises or hangs on one rank returns "not scored" there, every rank hears of it after the
    rewards are gathered, and all go on or end together.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.baselines = Baselines(host)  # turns rewards into advantages
        self._table: RewardTable = load_table(current_settings().reward_table)
        self._budget = Budget(current_settings().reward_failures)
        self._say = Once(logger.warning)
        self._scored: dict[str, Scored] = {}  # by name
        self.counts: dict[str, Report] = {}  # of the last batch on all ranks, by name

    def guard(self, names: Sequence[str]) -> None:
        """Put the trainer's reward functions behind guards, and log them by the names of ``--reward_funcs``.

        ``names`` are these; empty for a function that was given itself, which keeps its own name.

        Raises:
            RewardError: The reward table has a rule for a reward that nobody registered.
        """
        host = self._host
        host.reward_func_names[: len(names)] = [
            name or own for name, own in zip(names, host.reward_func_names, strict=False)
        ]
        plugins = host.reward_model_plugins
        for number, (function, name) in enumerate(
            zip(host.reward_funcs, host.reward_func_names, strict=False)
        ):
            if isinstance(function, nn.Module):
                plugins[number] = over_plain_rows(plugins[number])
                continue
            scored = host.reward_funcs[number] = self._guarded(function, name)
            self._scored[name] = scored
            self._require_rows(name, scored)
        require_known(sorted({*self._table.rewards}.difference(host.reward_func_names)), SETTING)

    def _require_rows(self, name: str, scored: Scored) -> None:
        """Warn at once, by a reward's name, if the dataset has no row of its tasks."""
        dataset, column, tasks = self._host.train_dataset, scored.task_column, scored.rule.tasks
        if tasks and column in (getattr(dataset, "column_names", None) or ()):
            values = set(map(str, dataset.unique(column)))
            if values.isdisjoint(tasks):
                logger.warning(
                    f"swift-grpo-ext: reward {name!r} scores no row: column {column!r} holds "
                    f"{sorted(values)[:9]}, and its tasks are {tasks} -> correct `tasks` in {SETTING}"
                )

    def _guarded(self, function: Callable[..., object] | Any, name: str) -> Scored:
        """The function in its guard, with a limit if there is one, and its rule of the table."""
        if isinstance(function, OfCatalogue):
            return function
        kind = AwaitedScored if waits(function) else Scored
        scored = kind(function, name, limit=current_settings().reward_timeout)
        scored.follow(self._table, name)
        return scored

    @property
    def reward_names(self) -> list[str]:
        """The rewards of the run; none in a worker of Ray, whose driver scores."""
        return getattr(self._host, "reward_func_names", [])

    def settled(self, samples: Sequence[VisionSample], rewards: Rewards) -> Rewards:
        """Rewards on which all ranks agree: NaN is "not scored", all else is finite.

        Raises:
            RewardError: More completions failed than the budget allows; on every rank.
        """
        rewards = torch.where(rewards.isfinite(), rewards, torch.nan)  # a gym environment may give infinities
        self._note(samples)
        placeholders = [sample.held_placeholder for sample in samples]
        gathered = gather_object([(drain_all(), placeholders)])
        self._account([reports for reports, _ in gathered])
        return self._without_placeholders(rewards, [cut for _, of_rank in gathered for cut in of_rank])

    def _note(self, samples: Sequence[VisionSample]) -> None:
        """Put beside each of this rank's completions what was read of it, and why it did not score more."""
        for name, scored in self._scored.items():
            for sample, outcome in zip(samples, scored.outcomes, strict=False):
                if outcome.read is not None:
                    sample.read[name] = outcome.read
                if reason := outcome.reason or ("scores 0" if outcome.score == 0 else ""):
                    sample.reason[name] = reason

    def _account(self, reports: list[Any]) -> None:
        """Log what the reward functions of all ranks could not score; in training too much ends the run."""
        total = {name: Report() for name in self._scored} | added(reports)
        for report in total.values():
            if report.first:  # on another rank, unless it is printed already
                announce(report.first)
        self.counts = total
        self._log(metrics(total))
        for name, scored in self._scored.items() if self._host.state.global_step == 0 else ():
            self._warn(scored.name, total[name])
        if self._host.model.training:  # validation rows may lack what training rows have
            self._budget.check(total)

    def _warn(self, name: str, report: Report) -> None:
        """Say of a reward that it gave no number for any completion of the first batch, or read few."""
        if report.completions and not report.scored and not report.failures:
            self._say(
                f"swift-grpo-ext: reward {name!r} scored none of the {report.completions} completions of "
                f"step 1 ({'; '.join(report.unscored) or 'it returned None or NaN for each'}): "
                "does the dataset have its columns?",
                f"nothing {name}",
            )
        if report.unread > UNREAD * report.completions:
            share = report.unread / report.completions
            self._say(
                f"swift-grpo-ext: reward {name!r}: {share:.0%} of the completions of step 1 are not in the "
                f"form that it reads, such as {form_not_asked(name, ())} ({report.example:.200}) -> "
                f"--system {system_text(name)!r}, and ext_format among --reward_funcs",
                f"unread {name}",
            )

    def _without_placeholders(self, rewards: Rewards, placeholders: list[bool]) -> Rewards:
        """Take the scores from completions (of all ranks) that held image placeholders."""
        if any(placeholders):
            rewards[torch.tensor(placeholders, device=rewards.device)] = torch.nan
            logger.warning_once(
                "swift-grpo-ext: completions with image placeholders arrived and are not scored. Does the "
                "rollout server load the plugin?"
            )
        self._log({"completions/with_placeholder": sum(placeholders) / max(1, len(placeholders))})
        return rewards

    def _log(self, figures: Mapping[str, float]) -> None:
        logged = metrics_of(self._host)
        for name, value in figures.items():
            logged[name].append(value)


def over_plain_rows(plugin: Callable[..., Any]) -> Callable[..., Any]:
    """A reward model's plugin whose own engine, if it has one, gets of each row messages and media alone.

    Of the other columns transformers' engine makes inputs of the judge's forward, which takes none of them.
    """
    engine = getattr(plugin, "engine", None)
    if not isinstance(engine, TransformersEngine):
        return plugin
    infer = engine.infer

    def of_plain(rows: Sequence[Mapping[str, Any]], *args: Any, **kwargs: Any) -> Any:
        plain = [{name: row[name] for name in _FOR_A_JUDGE if name in row} for row in rows]
        return infer(plain, *args, **kwargs)

    def judge(*args: Any, **kwargs: Any) -> Any:
        with swapped(engine, "infer", of_plain):
            return plugin(*args, **kwargs)

    return judge


def names_of(reward_funcs: RewardFunctions) -> list[str]:
    """The names among the reward functions of a command line; empty where a function was given itself.

    Those with parameters are registered.

    Raises:
        RewardError: No reward has one of the names.
    """
    functions = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
    names = [name if isinstance(name, str) else "" for name in functions]
    require_known(names)
    return names
