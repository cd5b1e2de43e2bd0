"""Baselines over scored completions, in the trainer: rewards in, advantages and their figures out."""

from __future__ import annotations

from typing import Any

import torch
from accelerate.utils import gather, gather_object
from swift.rlhf_trainers.utils import get_even_process_data
from torch import Tensor

from swift_grpo_ext.compat.refusals import Run, refuse
from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.group.advantages import GroupAdvantages, group_advantages
from swift_grpo_ext.group.statistics import reward_statistics


class GroupBaselines:
    """Mixin of the host's GRPO trainer: a reward is a value or "not scored".

    Completions that are not scored take no part in the update: their advantage is 0 and their tokens leave
    the loss, as the host's ``overlong_filter`` does it, so that no KL term moves them either.
    """

    _kept: Tensor  # of the last batch, all ranks, (n,) bool

    def _prepare_rewards(self: Any, *args: Any, **kwargs: Any) -> None:
        super()._prepare_rewards(*args, **kwargs)  # type: ignore[misc]
        refuse(Run({"num_generations": self.num_generations, "reward_funcs": self.reward_funcs}))

    def _compute_rewards_per_func(self: Any, samples: list[Any]) -> Tensor:
        rewards = super()._compute_rewards_per_func(samples)  # type: ignore[misc]
        return torch.where(rewards.isfinite(), rewards, torch.nan)  # a gym environment may give infinities

    def compute_std(self: Any, samples: list[Any], rewards_per_func: Tensor) -> Tensor:
        """Deviation of the rewards of each completion's group, ``(n,)``; 0 sends it to resampling."""
        result, rows = self._baselines(samples, rewards_per_func)
        return result.group_std[rows].float().to(rewards_per_func.device)

    def _compute_advantages(
        self: Any, samples: list[Any], rewards_per_func: Tensor, batch_encoded_inputs: list[dict[str, Any]]
    ) -> Tensor:
        penalty = self._kl_penalty(batch_encoded_inputs)
        result, rows = self._baselines(samples, rewards_per_func, penalty)
        last = _last_of_each(rows)
        metrics = self._metrics["train" if self.model.training else "eval"]
        figures = reward_statistics(
            result, rewards_per_func[last], self.reward_func_names, self.scale_rewards
        )
        for name, value in figures.items():
            metrics[name].append(value)
        if penalty is not None:
            metrics["kl"].append((penalty / self.beta).nanmean().item())
        for name, column in zip(self.reward_func_names, rewards_per_func.T, strict=True):
            scores = [None if score != score else score for score in column.tolist()]
            self._logs["rewards"][name].extend(scores)
        self._kept = result.kept[rows]
        return result.advantages[rows]

    def _postprocess_batch(self: Any, samples: list[Any], batch_encoded_inputs: list[dict[str, Any]]) -> None:
        super()._postprocess_batch(samples, batch_encoded_inputs)  # type: ignore[misc]
        if self._kept.all():  # the same on every rank: rewards are gathered
            return
        for sample, kept in zip(samples, get_even_process_data(self, self._kept), strict=True):
            sample.kept = bool(kept)
        for chunk, batch in zip(self.split_by_mini_batches(samples), batch_encoded_inputs, strict=True):
            grpo_batch = batch["grpo_batch"]
            kept = torch.tensor([sample.kept for sample in chunk], device=grpo_batch.completion_mask.device)
            if self.model.training:  # an evaluation updates nothing, and may have one completion per prompt
                grpo_batch.completion_mask = grpo_batch.completion_mask & kept.unsqueeze(1)
            if self.loss_type == "real":  # splits a group into above 0 and not above 0: NaN is neither
                grpo_batch.advantages = grpo_batch.advantages.masked_fill(~kept.unsqueeze(1), torch.nan)

    def _baselines(
        self: Any, samples: list[Any], rewards_per_func: Tensor, penalty: Tensor | None = None
    ) -> tuple[GroupAdvantages, Tensor]:
        """Advantages of the distinct requests of all ranks, and each completion's row among them."""
        group, rows = self._groups(samples, len(rewards_per_func))
        last = _last_of_each(rows)
        if not torch.allclose(rewards_per_func, rewards_per_func[last][rows], atol=1e-6, equal_nan=True):
            raise RewardError(
                "turns of one request have different rewards",
                fix="give every turn of a request the reward of the whole trajectory",
            )
        result = group_advantages(
            rewards_per_func[last],
            self.reward_weights,
            group[last],
            estimator=self.advantage_estimator,
            scale=self.scale_rewards,
            penalty=None if penalty is None else penalty[last],
        )
        return result, rows

    def _groups(self: Any, samples: list[Any], total: int) -> tuple[Tensor, Tensor]:
        """Group of each completion of all ranks, and the number of its request, both ``(total,)``.

        A multi-turn server may return several completions of one request (they share its reward) and groups
        of any size; otherwise every ``num_generations`` completions in a row are a group.
        """
        if self.dynamic_num_samples:
            prompts = gather_object([sample.prompt_id for sample in samples])
            requests = gather_object([sample.request_id for sample in samples])
            return _numbers(prompts), _numbers(requests)
        size = self.num_generations if self.model.training else self.num_generations_eval
        rows = torch.arange(total)
        return rows // size, rows

    def _kl_penalty(self: Any, batch_encoded_inputs: list[dict[str, Any]]) -> Tensor | None:
        """Beta times the KL of each completion of all ranks, ``(n,)``, if it is to be taken off rewards."""
        if not self.kl_in_reward or self.beta == 0.0:
            return None
        batches = [batch["grpo_batch"] for batch in batch_encoded_inputs]
        kl = [
            ((batch.old_per_token_logps - batch.ref_per_token_logps) * batch.completion_mask).sum(-1)
            for batch in batches
        ]
        return self.beta * gather(torch.cat(kl))


def _numbers(names: list[str]) -> Tensor:
    """Names as numbers, counted in the order of first appearance."""
    known: dict[str, int] = {}
    return torch.tensor([known.setdefault(name, len(known)) for name in names])


def _last_of_each(numbers: Tensor) -> Tensor:
    """Position at which each of the numbers 0, 1, ... is last met; the host keeps the last turn too."""
    count = int(numbers.max()) + 1 if numbers.numel() else 0
    return torch.zeros(count, dtype=torch.long).scatter_reduce(
        0, numbers, torch.arange(len(numbers)), "amax", include_self=False
    )
