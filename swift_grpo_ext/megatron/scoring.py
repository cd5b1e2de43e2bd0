"""Rewards and advantages with Megatron, where each rank scores its own completions."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import gather, gather_object
from megatron.core import mpu
from swift.megatron.trainers.utils import gather as gather_over
from swift.rl_core.data import GRPOBatch
from torch import Tensor

from swift_grpo_ext.megatron.host import Host
from swift_grpo_ext.trainer.baselines import Baselines, numbers
from swift_grpo_ext.trainer.samples import VisionSample
from swift_grpo_ext.trainer.scoring import Scoring


class RankBaselines(Baselines):
    """Baselines of groups whose completions lie on several ranks.

    Ranks that compute the same micro-batches divide their completions for the rollout. With pipeline and data
    parallelism their numbers are not one after another, and ms-swift compares completions of two prompts.
    """

    def _groups(self, samples: Sequence[VisionSample], total: int) -> tuple[Tensor, Tensor]:
        host: Any = self._host
        own = (mpu.get_data_parallel_rank(), dist.get_rank(host._get_rollout_group()))
        ranks = gather_object([own])
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        each = total // len(ranks)
        size = host.num_generations if host.model.training else host.num_generations_eval
        places = [(order.index(row // each) * each + row % each) // size for row in range(total)]
        prompts = gather_object([sample.prompt_key for sample in samples])
        return numbers(list(zip(places, prompts, strict=True))), torch.arange(total)


class RankScoring:
    """Gives `Scoring`, which judges the completions of all ranks together, those of one."""

    def __init__(self, host: Any, scoring: Scoring) -> None:
        self._host: Host = host
        self._scoring = scoring
        scoring.baselines = RankBaselines(host)

    def settled(self, samples: Sequence[VisionSample], rewards: Tensor) -> Tensor:
        """Rewards ``(n, functions)`` of this rank on which all agree: NaN is "not scored".

        Raises:
            RewardError: On every rank, if more completions failed than the budget allows.
        """
        if not rewards.shape[1]:  # a teacher alone
            return rewards
        every = self._scoring.settled(samples, gather(rewards))
        return self._own(every)

    def advantages(
        self, samples: Sequence[VisionSample], rewards: Tensor, batches: Sequence[GRPOBatch]
    ) -> Tensor:
        """Advantages ``(n,)`` of this rank; completions that are not scored leave the loss of its batches."""
        host = self._host
        baselines = self._scoring.baselines
        every = baselines.advantages(samples, gather(rewards), ())
        host._logs["advantages"].extend(every.tolist())
        kept = baselines.kept
        if kept is not None and not kept.all() and host.unwrapped_models[0].training:
            self._leave_out(self._own(kept.to(host.device)), batches)
        return self._own(every)

    def _leave_out(self, kept: Tensor, batches: Sequence[GRPOBatch]) -> None:
        """The micro-batches hold the completions of all ranks that compute them together, in order."""
        rows = gather_over(kept.int(), group=self._host._get_rollout_group()).bool()
        sizes = [len(batch.completion_mask) for batch in batches]
        for batch, of_batch in zip(batches, torch.split(rows, sizes), strict=True):
            batch.completion_mask = batch.completion_mask & of_batch[:, None]

    def _own(self, values: Tensor) -> Tensor:
        return values.chunk(self._host.world_size)[self._host.process_index].to(self._host.device)
