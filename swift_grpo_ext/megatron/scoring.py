"""Rewards and advantages with Megatron, where each rank scores its own completions."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import gather, gather_object
from megatron.core import mpu
from swift.megatron.trainers.utils import gather as gather_over
from swift.rl_core.data import GRPOBatch
from torch import Tensor

from swift_grpo_ext.megatron.host import MegatronHost
from swift_grpo_ext.trainer.baselines import Baselines, leave_out, numbers
from swift_grpo_ext.trainer.rollout import enough
from swift_grpo_ext.trainer.samples import VisionSample
from swift_grpo_ext.trainer.scoring import Scoring


def ranks_in_order(host: MegatronHost) -> list[int]:
    """All ranks in the order of their completions: those that compute the same ones follow each other."""
    ranks = gather_object([(mpu.get_data_parallel_rank(), dist.get_rank(host._get_rollout_group()))])
    return sorted(range(len(ranks)), key=ranks.__getitem__)


class RankBaselines(Baselines):
    """Baselines of groups whose completions lie on several ranks.

    Ranks that compute the same micro-batches divide their completions for the rollout. With pipeline and data
    parallelism their numbers are not one after another, and ms-swift compares completions of two prompts.
    """

    def _groups(self, samples: Sequence[VisionSample], total: int) -> tuple[Tensor, Tensor]:
        host: Any = self._host
        order = ranks_in_order(host)
        each = total // len(order)
        size = host.num_generations if host.model.training else host.num_generations_eval
        places = [(order.index(row // each) * each + row % each) // size for row in range(total)]
        prompts = gather_object([sample.prompt_key for sample in samples])
        return numbers(list(zip(places, prompts, strict=True))), torch.arange(total)


class RankScoring:
    """Feeds the completions of one rank to `Scoring`, which judges those of all ranks together."""

    def __init__(self, host: Any, scoring: Scoring) -> None:
        self._host: MegatronHost = host
        self._scoring = scoring
        scoring.baselines = RankBaselines(host)

    def settled(self, samples: Sequence[VisionSample], rewards: Tensor) -> Tensor:
        """Rewards ``(n, functions)`` of this rank on which all agree: NaN is "not scored".

        Raises:
            RewardError: On every rank, if more completions failed than the budget allows.
        """
        if not rewards.shape[1]:  # a teacher alone
            return rewards
        return self._own(self._scoring.settled(samples, gather(rewards)))

    def advantages(
        self,
        samples: Sequence[VisionSample],
        rewards: Tensor,
        batches: Sequence[GRPOBatch],
        kl: Tensor | None = None,
    ) -> Tensor:
        """Advantages ``(n,)`` of this rank; completions that are not scored leave the loss of its batches.

        ``kl``, of all ranks, is taken off their rewards, times beta.
        """
        host = self._host
        baselines = self._scoring.baselines
        penalty = None if kl is None else host.beta * kl
        every = baselines.advantages(samples, gather(rewards), penalty)
        host._logs["advantages"].extend(every.tolist())
        kept = baselines.kept
        if kept is not None and not kept.all() and host.model.training:
            # The micro-batches hold the completions of all ranks that compute them together, in order.
            rows = gather_over(self._own(kept).int().to(every.device), group=host._get_rollout_group())
            leave_out(batches, rows.bool())
        return self._own(baselines.of_loss(every))

    def resampled(
        self, samples: list[VisionSample], rewards: Tensor, fresh: Callable[[], list[VisionSample]]
    ) -> tuple[list[VisionSample], Tensor]:
        """This rank's samples and rewards of groups that can be compared, if enough are found.

        ms-swift also cuts what it found by the numbers of the ranks, which are not in the order of groups
        with pipeline and data parallelism, and puts rows of training, which ``fresh`` draws, into an
        evaluation.
        """
        host = self._host
        if not host.model.training:
            return samples, rewards
        order = ranks_in_order(host)

        def scored() -> tuple[list[VisionSample], Tensor]:
            drawn = fresh()
            return drawn, host._score_completions(drawn)

        def differing(samples: list[VisionSample], rewards: Tensor) -> tuple[list[VisionSample], Tensor]:
            every, of_every = gather_object(samples), gather(rewards)
            differ = self._scoring.baselines.deviations(samples, of_every) > 0
            each = len(every) // len(order)
            rows = [rank * each + row for rank in order for row in range(each)]
            chosen = [row for row in rows if differ[row]]
            return [every[row] for row in chosen], of_every[chosen]

        kept = enough(host, (samples, rewards), scored, differing)
        if not kept:
            return samples, rewards
        each = len(kept[0]) // len(order)
        start = order.index(host.process_index) * each
        return kept[0][start : start + each], kept[1][start : start + each]

    def _own(self, values: Tensor) -> Tensor:
        return values.chunk(self._host.world_size)[self._host.process_index].to(self._host.device)
