"""Rewards in the trainer: guarded on every rank, judged by all ranks together, logged by task."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any, TypeAlias

import torch
from accelerate.utils import gather_object
from jaxtyping import Float
from torch import Tensor, nn

from swift_grpo_ext.compat.refusals import Run, refuse
from swift_grpo_ext.ms_swift.shared import _is_async_reward, get_logger
from swift_grpo_ext.rewards.catalogue import NAMES, get_reward
from swift_grpo_ext.rewards.registration import register_short_forms
from swift_grpo_ext.rewards.runtime import cross_rank
from swift_grpo_ext.rewards.runtime.batch import Composition
from swift_grpo_ext.rewards.runtime.guard import AsyncGuard, Guard, Limited, PluginGuard
from swift_grpo_ext.rewards.runtime.ledger import Report, announce, drain_all
from swift_grpo_ext.rewards.runtime.rules import RewardRule, RewardTable, load_table
from swift_grpo_ext.rewards.runtime.runner import Runner
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.trainer.baselines import Baselines
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import Rewards, VisionSample

logger = get_logger()
RewardFunction: TypeAlias = str | nn.Module | Callable[..., Any]  # a name, a model, or the function
RewardFunctions: TypeAlias = RewardFunction | list[RewardFunction]


class Scoring:
    """Rewards of a run, and the advantages that follow from them.

    A function that raises or hangs on one rank returns "not scored" there, every rank hears of it after the
    rewards are gathered, and all go on or end together.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.baselines = Baselines(host)  # turns rewards into advantages
        self._table: RewardTable = load_table(current_settings().reward_table)
        self._budget = cross_rank.Budget(current_settings().reward_failures)
        self._rules: list[RewardRule] = []
        self._given_weights: Float[Tensor, " functions"] | None = None
        self.logged_names: dict[str, str] = {}  # of rewards, by the names under which they were asked for

    def guard(self, names: Sequence[str]) -> None:
        """Put the trainer's reward functions behind guards.

        ``names`` are those under which they were asked for; empty for a function that was given itself.

        Raises:
            RefusedError: They must not run.
        """
        host = self._host
        refuse(Run({"num_generations": host.num_generations, "reward_funcs": host.reward_funcs}))
        given = zip_longest(host.reward_func_names, names, fillvalue="")
        self.logged_names = dict(zip(names, host.reward_func_names, strict=False))
        plugins = host.reward_model_plugins
        for number, (function, (metric, registered)) in enumerate(
            zip(host.reward_funcs, given, strict=False)
        ):
            self._rules.append(self._table.rule(metric, registered))
            if isinstance(function, nn.Module):
                plugins[number] = PluginGuard(plugins[number], metric)
            else:
                host.reward_funcs[number] = self._guarded(function, metric, self._rules[-1])

    def _guarded(self, function: Callable[..., object], name: str, rule: RewardRule) -> Guard:
        """The function behind a guard; with a limit, and with its rule if it is a user's own."""
        own = not hasattr(function, "keeps_ledger")
        args = self._host.args
        table = self._table
        seconds = current_settings().reward_timeout
        composition = None
        if own and name not in NAMES:
            runner = cache(lambda name: Runner(get_reward(name), args, table))
            composition = Composition(rule, table.task_column, scorer=runner)
        options = {"composition": composition, "output_dir": args.output_dir}
        if _is_async_reward(function):
            return AsyncGuard(function, name, seconds=seconds if own else None, **options)
        if own and seconds is not None:
            function = Limited(function, seconds, name)
        return Guard(function, name, **options)

    @property
    def reward_names(self) -> list[str]:
        """The rewards of the run, as they were typed; none in a worker of Ray, whose driver scores."""
        typed = {logged: name for name, logged in self.logged_names.items() if name}
        return [typed.get(name, name) for name in getattr(self._host, "reward_func_names", ())]

    def follow_schedule(self) -> None:
        """Weights of this step: those of the command line times the factors of the reward table."""
        if all(rule.weight == 1.0 for rule in self._rules):
            return
        if self._given_weights is None:
            self._given_weights = self._host.reward_weights.clone()
        factors = [rule.weight_at(self._host.state.global_step) for rule in self._rules]
        weights = self._given_weights.clone()
        weights[: len(factors)] *= weights.new_tensor(factors)
        self._host.reward_weights = weights

    def settled(self, samples: Sequence[VisionSample], rewards: Rewards) -> Rewards:
        """Rewards on which all ranks agree: NaN is "not scored", all else is finite.

        Raises:
            RewardError: More completions failed than the budget allows; on every rank.
        """
        rewards = torch.where(rewards.isfinite(), rewards, torch.nan)  # a gym environment may give infinities
        tasks = [sample.extra.get(self._table.task_column) for sample in samples]
        placeholders = [sample.held_placeholder for sample in samples]
        gathered = gather_object([(drain_all(), tasks, placeholders)])
        total = self._account([reports for reports, _, _ in gathered])
        self._warn_of_unscored(rewards, total)
        everybodys = [task for _, of_rank, _ in gathered for task in of_rank]
        self._log(cross_rank.task_means(rewards, everybodys, self._host.reward_func_names))
        return self._without_placeholders(rewards, [cut for _, _, of_rank in gathered for cut in of_rank])

    def _account(self, reports: list[Any]) -> dict[str, Report]:
        """Log what the reward functions of all ranks could not score; in training too much ends the run."""
        total = cross_rank.added(reports)
        for name, report in total.items():
            if report.first:  # on another rank, unless it is printed already
                announce(report.first)
            if report.unscored and self._host.accelerator.is_main_process:
                reasons = [f"{count} x {reason}" for reason, count in report.unscored.most_common(5)]
                logger.info_once(f"reward {name}: no score for {'; '.join(reasons)}")
        self._log(cross_rank.metrics(total))
        if self._host.model.training:  # validation rows may lack what training rows have
            self._budget.check(total)
        return total

    def _warn_of_unscored(self, rewards: Rewards, total: Mapping[str, Report]) -> None:
        """Say at once of a reward that gave no number for any completion of a batch."""
        names = self._host.reward_func_names
        for name, rule, column in zip(names, self._rules, rewards.T, strict=False):
            report = total.get(name, Report())
            if rule.tasks or report.failures or not column.isnan().all():
                continue
            reasons = "; ".join(report.unscored) or "it returned None or NaN for each"
            logger.warning_once(
                f"swift-grpo-ext: reward {name!r} scored none of the {len(column)} completions of step "
                f"{self._host.state.global_step + 1} ({reasons}): does the dataset have its columns?",
                hash_id=f"{name} scores nothing {self._host.args.output_dir}",
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
        logged = self._host._metrics["train" if self._host.model.training else "eval"]
        for name, value in figures.items():
            logged[name].append(value)


def names_of(reward_funcs: RewardFunctions) -> list[str]:
    """The names among the reward functions of a command line; empty where a function was given itself.

    Those with parameters are registered.
    """
    given = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
    names = [name if isinstance(name, str) else "" for name in given]
    register_short_forms(names)
    return names
