"""Rewards and advantages with Megatron, where each rank scores its own completions."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import gather, gather_object
from megatron.core import mpu
from swift.megatron.trainers.utils import gather as gather_over
from swift.rl_core.data import GRPOBatch
from swift.utils import get_logger
from torch import Tensor

from swift_grpo_ext.losses import loss_named
from swift_grpo_ext.megatron.host import Host
from swift_grpo_ext.trainer.baselines import Baselines, numbers
from swift_grpo_ext.trainer.samples import VisionSample
from swift_grpo_ext.trainer.scoring import Scoring

logger = get_logger()


def ranks_in_order(host: Host) -> list[int]:
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
        if kept is None or kept.all():
            return self._own(every)
        if host.unwrapped_models[0].training:
            self._leave_out(self._own(kept.to(host.device)), batches)
        if loss_named(host.loss_type).whole_groups:  # splits a group into above 0 and not: NaN is neither
            every = every.masked_fill(~kept.to(every.device), torch.nan)
        return self._own(every)

    def resampled(
        self, samples: list[VisionSample], rewards: Tensor, fresh: Callable[[], list[VisionSample]]
    ) -> tuple[list[VisionSample], Tensor]:
        """This rank's samples and rewards of groups that can be compared, if enough are found.

        As in `trainer.rollout.resampled`, each new batch, which ``fresh`` draws, counts. ms-swift also
        cuts what it found by the numbers of the ranks, which are not in the order of groups with pipeline
        and data parallelism, and puts rows of training into an evaluation.
        """
        host = self._host
        if not host.unwrapped_models[0].training:
            return samples, rewards
        order = ranks_in_order(host)
        wanted = host.args.generation_batch_size
        kept: list[VisionSample] = []
        scores: list[Tensor] = []
        batch = samples, rewards
        for new in range(host.max_resample_times + 1):
            if new:
                drawn = fresh()
                batch = drawn, host._score_completions(drawn)
            every, of_every = gather_object(batch[0]), gather(batch[1])
            differ = self._scoring.baselines.deviations(batch[0], of_every) > 0
            each = len(every) // len(order)
            rows = [rank * each + row for rank in order for row in range(each)]
            chosen = [row for row in rows if differ[row]]
            kept += [every[row] for row in chosen]
            scores.append(of_every[chosen])
            if len(kept) >= wanted:
                start = order.index(host.process_index) * (wanted // len(order))
                own = slice(start, start + wanted // len(order))
                return kept[own], torch.cat(scores)[own]
        logger.warning(
            f"swift-grpo-ext: {len(kept)} of {wanted} completions are in groups whose rewards differ, after "
            f"{host.max_resample_times} new batches (max_resample_times): the step takes the first batch"
        )
        return samples, rewards

    def _leave_out(self, kept: Tensor, batches: Sequence[GRPOBatch]) -> None:
        """The micro-batches hold the completions of all ranks that compute them together, in order."""
        rows = gather_over(kept.int(), group=self._host._get_rollout_group()).bool()
        sizes = [len(batch.completion_mask) for batch in batches]
        for batch, of_batch in zip(batches, torch.split(rows, sizes), strict=True):
            batch.completion_mask = batch.completion_mask & of_batch[:, None]

    def _own(self, values: Tensor) -> Tensor:
        return values.chunk(self._host.world_size)[self._host.process_index].to(self._host.device)
