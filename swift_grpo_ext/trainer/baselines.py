"""Baselines over scored completions, in the trainer: rewards in, advantages and their figures out."""

from collections.abc import Hashable, Mapping, Sequence

import torch
from accelerate.utils import gather, gather_object
from jaxtyping import Bool, Int
from torch import Tensor

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.group.advantages import GroupAdvantages, group_advantages, reward_statistics
from swift_grpo_ext.losses import loss_named
from swift_grpo_ext.ms_swift.shared import GRPOBatch, get_even_process_data, get_logger
from swift_grpo_ext.trainer.host import Host, metrics_of
from swift_grpo_ext.trainer.samples import PerCompletion, Rewards, VisionSample

logger = get_logger()


class Baselines:
    """Baselines over scored completions: a reward is a value or "not scored".

    One that is not scored has the advantage 0 and no tokens in the loss, so that no KL term moves it either.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        # Of the last batch, all ranks, on the CPU: it is scored.
        self.kept: Bool[Tensor, " completions"] | None = None

    def deviations(self, samples: Sequence[VisionSample], rewards: Rewards) -> PerCompletion:
        """Deviation of the rewards of each completion's group; 0 sends it to resampling."""
        result, rows = self._baselines(samples, rewards.cpu())
        return result.group_std[rows].float().to(rewards.device, non_blocking=True)

    def advantages(
        self, samples: Sequence[VisionSample], rewards: Rewards, penalty: PerCompletion | None = None
    ) -> PerCompletion:
        """Advantage of each completion of all ranks; their figures go into the log.

        ``penalty`` is taken off its rewards: see `kl_penalty`.
        """
        host, device = self._host, rewards.device
        # A few numbers, copied once: each read of a value on a GPU would wait for all queued kernels.
        rewards, penalty = rewards.cpu(), None if penalty is None else penalty.cpu()
        result, rows = self._baselines(samples, rewards, penalty)
        last = _last_of_each(rows)
        metrics = metrics_of(host)
        figures = reward_statistics(result, rewards[last], host.reward_func_names, host.scale_rewards)
        if penalty is not None:
            figures["kl"] = (penalty / host.beta).nanmean().item()
        for name, value in figures.items():
            metrics[name].append(value)
        for name, column in zip(host.reward_func_names, rewards.T, strict=True):
            scores = [None if score != score else score for score in column.tolist()]
            host._logs["rewards"][name].extend(scores)
        self.kept = result.kept[rows]
        return result.advantages[rows].to(device, non_blocking=True)

    def of_loss(self, advantages: PerCompletion) -> PerCompletion:
        """Advantages of the last batch for a loss that splits groups at 0: NaN is on neither side."""
        if self.kept is None or not loss_named(self._host.loss_type).whole_groups:
            return advantages
        return advantages.masked_fill(~self.kept.to(advantages.device, non_blocking=True), torch.nan)

    def leave_out_unscored(
        self, samples: Sequence[VisionSample], batches: Sequence[Mapping[str, GRPOBatch]]
    ) -> None:
        """Take completions that are not scored out of the loss of this rank's micro-batches."""
        host = self._host
        if self.kept is None or self.kept.all():  # the same on every rank: rewards are gathered
            return
        for sample, kept in zip(samples, get_even_process_data(host, self.kept), strict=True):
            sample.kept = bool(kept)
        for chunk, batch in zip(host.split_by_mini_batches(samples), batches, strict=True):
            grpo_batch = batch["grpo_batch"]
            mask = grpo_batch.completion_mask
            kept = torch.tensor([[sample.kept] for sample in chunk], device=mask.device)
            if host.model.training:  # an evaluation updates nothing, and may have one completion per prompt
                grpo_batch.completion_mask = mask & kept
            if loss_named(host.loss_type).whole_groups:  # splits groups at 0: NaN is on neither side
                grpo_batch.advantages = grpo_batch.advantages.masked_fill(~kept, torch.nan)

    def _baselines(
        self, samples: Sequence[VisionSample], rewards: Rewards, penalty: PerCompletion | None = None
    ) -> tuple[GroupAdvantages, Int[Tensor, " completions"]]:
        """Advantages of the distinct requests of all ranks, and each completion's row among them.

        Raises:
            RewardError: Turns of one request have different rewards; on every rank alike.
        """
        host = self._host
        group, rows = self._groups(samples, len(rewards))
        last = _last_of_each(rows)
        if not torch.allclose(rewards, rewards[last][rows], atol=1e-6, equal_nan=True):
            raise RewardError(
                "turns of one request have different rewards",
                fix="give every turn of a request the reward of the whole trajectory",
            )
        result = group_advantages(
            rewards[last],
            host.reward_weights,
            group[last],
            estimator=host.advantage_estimator,
            scale=host.scale_rewards,
            penalty=None if penalty is None else penalty[last],
        )
        return result, rows

    def _groups(
        self, samples: Sequence[VisionSample], total: int
    ) -> tuple[Int[Tensor, " completions"], Int[Tensor, " completions"]]:
        """Group of each completion of all ranks, and the number of its request.

        A multi-turn server may return several completions of one request, with its reward, and groups of any
        size; otherwise ``num_generations`` completions in a row are a group, if they are of one prompt.
        """
        host = self._host
        if host.dynamic_num_samples:
            prompts = gather_object([sample.prompt_id for sample in samples])
            requests = gather_object([sample.request_id for sample in samples])
            return numbers(prompts), numbers(requests)
        size = host.num_generations if host.model.training else host.num_generations_eval
        rows = torch.arange(total)
        places = (rows // size).tolist()
        prompts = gather_object([sample.prompt_key for sample in samples])
        groups = numbers(list(zip(places, prompts, strict=True)))
        if len(set(groups.tolist())) > len(set(places)):
            logger.warning_once(
                "swift-grpo-ext: a group holds completions of different prompts. Only completions of one "
                "prompt are compared, and a single one is not scored. Rows that are replaced one by one do "
                "this"
            )
        return groups, rows

    def kl_penalty(self, batches: Sequence[Mapping[str, GRPOBatch]]) -> PerCompletion | None:
        """Beta times the KL of each completion of all ranks, if it is to be taken off rewards."""
        host = self._host
        if not host.kl_in_reward or host.beta == 0.0:
            return None
        grpo_batches = [batch["grpo_batch"] for batch in batches]
        kl = [(b.old_per_token_logps - b.ref_per_token_logps) * b.completion_mask for b in grpo_batches]
        penalty: PerCompletion = host.beta * gather(torch.cat([tokens.sum(-1) for tokens in kl]))
        return penalty


def leave_out(batches: Sequence[GRPOBatch], kept: Bool[Tensor, " completions"]) -> None:
    """Take the completions of micro-batches that are not ``kept``, in their order, out of the loss."""
    sizes = [len(batch.completion_mask) for batch in batches]
    for batch, rows in zip(batches, kept.split(sizes), strict=True):
        mask = batch.completion_mask
        batch.completion_mask = mask & rows[:, None].to(mask.device, non_blocking=True)


def numbers(names: Sequence[Hashable]) -> Int[Tensor, " names"]:
    """Names as numbers, counted in the order of first appearance."""
    numbers: dict[Hashable, int] = {}
    return torch.tensor([numbers.setdefault(name, len(numbers)) for name in names])


def _last_of_each(numbers: Int[Tensor, " names"]) -> Int[Tensor, " distinct"]:
    """Position at which each of the numbers 0, 1, ... is last met; ms-swift keeps the last turn too."""
    last = {number: place for place, number in enumerate(numbers.tolist())}
    return torch.tensor([last[number] for number in range(len(last))], dtype=torch.long)
