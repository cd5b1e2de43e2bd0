"""Rewards in the trainer: guarded on every rank, judged by all ranks together, logged by task."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

from accelerate.utils import gather_object
from swift.rl_core.grpo_algorithm import _is_async_reward
from swift.utils import get_logger
from torch import Tensor, nn

from swift_grpo_ext.rewards.catalogue import NAMES, get_reward
from swift_grpo_ext.rewards.runtime.composition import Composition
from swift_grpo_ext.rewards.runtime.cross_rank import Budget, added, metrics, unscored_in_words
from swift_grpo_ext.rewards.runtime.guard import AsyncGuard, Guard, PluginGuard
from swift_grpo_ext.rewards.runtime.ledger import drain_all
from swift_grpo_ext.rewards.runtime.limits import Limited
from swift_grpo_ext.rewards.runtime.rules import RewardRule, RewardTable, load_table
from swift_grpo_ext.rewards.runtime.runner import Runner
from swift_grpo_ext.rewards.runtime.tasks import TaskScales, task_means
from swift_grpo_ext.settings import current_settings

logger = get_logger()


class RewardRuntime:
    """Mixin of the host's GRPO trainer, outside of every other that wraps reward functions.

    A reward function that raises or hangs on one rank would leave the others waiting for it. Here it returns
    "not scored" instead, every rank tells the others after the rewards are gathered, and they go on or end
    together.
    """

    infinite_scores: Counter[str]  # this rank's, by reward function, over the whole run

    def _prepare_rewards(self: Any, reward_funcs: Any, *args: Any, **kwargs: Any) -> None:
        given = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
        names = [name if isinstance(name, str) else "" for name in given]
        super()._prepare_rewards(reward_funcs, *args, **kwargs)  # type: ignore[misc]
        settings = current_settings()
        self._reward_table: RewardTable = load_table(settings.reward_table)
        self._reward_budget = Budget(settings.reward_failures)
        self._task_scales = TaskScales()
        self.infinite_scores = Counter()
        self._reward_rules: list[RewardRule] = []
        for number, (function, metric) in enumerate(
            zip(self.reward_funcs, self.reward_func_names, strict=False)
        ):
            registered = names[number] if number < len(names) else ""
            self._reward_rules.append(self._reward_table.rule(metric, registered))
            if isinstance(function, nn.Module):
                plugin = self.reward_model_plugins[number]
                self.reward_model_plugins[number] = PluginGuard(plugin, metric, self.infinite_scores)
            else:
                self.reward_funcs[number] = self._guarded(function, metric, self._reward_rules[-1])

    def _guarded(self: Any, function: Any, name: str, rule: RewardRule) -> Guard:
        """The function behind a guard; with a limit, and with its rule if it is a user's own."""
        own = not hasattr(function, "keeps_ledger")
        composition = self._composition(rule) if own and name not in NAMES else None
        seconds = current_settings().reward_timeout
        options = {
            "composition": composition,
            "output_dir": self.args.output_dir,
            "infinite": self.infinite_scores,
        }
        if _is_async_reward(function):
            return AsyncGuard(function, name, seconds=seconds if own else None, **options)
        if own and seconds is not None:
            function = Limited(function, seconds, name)
        return Guard(function, name, **options)

    def _composition(self: Any, rule: RewardRule) -> Composition:
        table = self._reward_table
        return Composition(
            rule,
            table.task_column,
            rule.floor,
            cache(lambda name: Runner(get_reward(name), self.args, table)),
        )

    def _compute_rewards_per_func(self: Any, samples: list[Any]) -> Tensor:
        self._follow_schedule()
        rewards = super()._compute_rewards_per_func(samples)  # type: ignore[misc]
        tasks = [sample.extra.get(self._reward_table.task_column) for sample in samples]
        gathered = gather_object([(drain_all(), tasks)])
        total = added([reports for reports, _ in gathered])
        log = self._metrics["train" if self.model.training else "eval"]
        for name, report in total.items():
            if report.unscored and self.accelerator.is_main_process:
                logger.info_once(f"reward {name}: no score for {unscored_in_words(report.unscored)}")
        for name, value in metrics(total).items():
            log[name].append(value)
        self._reward_budget.check(total)
        everybodys = [task for _, theirs in gathered for task in theirs]
        for name, value in task_means(rewards, everybodys, self.reward_func_names).items():
            log[name].append(value)
        chosen = [number for number, rule in enumerate(self._reward_rules) if rule.normalise]
        return self._task_scales.scaled(rewards, everybodys, chosen) if chosen else rewards

    def _follow_schedule(self: Any) -> None:
        """Weights of this step: those of the command line times the factors of the reward table."""
        if all(rule.weight == 1.0 for rule in self._reward_rules):
            return
        if not hasattr(self, "_given_reward_weights"):
            self._given_reward_weights = self.reward_weights.clone()
        factors = [rule.weight_at(self.state.global_step) for rule in self._reward_rules]
        weights = self._given_reward_weights.clone()
        weights[: len(factors)] *= weights.new_tensor(factors)
        self.reward_weights = weights
