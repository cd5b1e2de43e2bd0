"""GRPO by ms-swift's Ray trainer on Megatron: our driver, and our workers, in its registry.

The driver samples, scores and collates, and each worker, a rank of Megatron, computes: see `ray_worker.py`.
"""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from swift.ray.megatron import grpo_trainer, megatron_worker
from swift.ray.megatron.grpo_trainer import GRPOSample, GRPOTrainer, compute_std_for_dynamic_sampling  # noqa: F401
from swift.rl_core.data import GRPOBatch
from swift.utils import get_logger
from torch import Tensor

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.megatron.ray_worker import Worker
from swift_grpo_ext.models.families import frame_of
from swift_grpo_ext.ms_swift.overrides import require_overridden
from swift_grpo_ext.rewards.registration import tell_frame
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.baselines import Baselines, leave_out
from swift_grpo_ext.trainer.rollout import Rollout
from swift_grpo_ext.trainer.rows import Rows
from swift_grpo_ext.trainer.samples import Row, Samples, VisionSample
from swift_grpo_ext.trainer.scoring import Scoring, names_of

logger = get_logger()
_THEIRS = {
    "trainer": "swift.ray.megatron.grpo_trainer.GRPOTrainer",
    "loss": "swift.ray.megatron.loss.grpo.GRPOLoss",
}


class WholeGroups(Baselines):
    """Baselines of groups that the driver has in whole, completion after completion."""

    def _groups(self, samples: Sequence[VisionSample], total: int) -> tuple[Tensor, Tensor]:
        rows = torch.arange(total)
        return rows // self._host.num_generations, rows


class Driver(GRPOTrainer):
    """ms-swift's driver with each method that we change, once; rows and rewards are as in all trainers."""

    # What the collaborators of all trainers call by the names of transformers' one.
    model = SimpleNamespace(training=True)
    accelerator = SimpleNamespace(is_main_process=True)
    enable_server_multi_turn = False
    eval_dataset: Any = None
    _logs: dict[str, Any]

    @property
    def train_dataset(self) -> Any:
        """The rows of the run."""
        return self._data_info["train_dataset"]

    @property
    def multi_turn_scheduler(self) -> Any:
        """Scheduler that goes on after a turn, if there is one."""
        return self._multi_turn_scheduler

    def _prepare_state(self) -> None:
        """The workers are there, and the dataset."""
        self.state = SimpleNamespace(global_step=0)
        self.rows = Rows(self)
        self.rollout = Rollout(self)
        self.scoring = Scoring(self)
        self.scoring.baselines = WholeGroups(self)
        self._metrics: dict[str, defaultdict[str, list[float]]] = {"train": defaultdict(list)}
        super()._prepare_state()
        self.loss_type = self.args.loss_type
        # With this column a teacher sees another prompt, and is compared with old log-probs.
        columns = getattr(self.train_dataset, "column_names", None) or ["teacher_prompt"]
        taught = "teacher_prompt" in columns
        self.args.micro_batch_size, *_ = self.train_group.broadcast("join_driver", taught)

    def _build_dataloader(self) -> None:
        super()._build_dataloader()
        if not len(self._dataloader):
            raise RefusedError(
                f"{len(self.train_dataset)} rows do not fill a generation batch of "
                f"{self._dataloader.batch_size} prompts: ms-swift would look for one for ever",
                where="--dataset",
                fix="more rows, or a smaller --global_batch_size or --steps_per_generation",
            )

    def _prepare_rewards(self) -> None:
        names = names_of(self.args.reward_funcs)
        super()._prepare_rewards()
        tell_frame(self.reward_funcs, frame_of(self.template.config))
        self.scoring.guard(names)

    def _train_loop(self, tg: Any, train_iters: int, iteration: int) -> Any:
        self.state.global_step = iteration
        return super()._train_loop(tg, train_iters, iteration)

    def expand_for_generation(self, prompt_batch: list[Row]) -> Samples:
        """Samples of rows, once every broken row is replaced."""
        return self.rows.named(super().expand_for_generation(self.rows.good(prompt_batch)))

    def _postprocess_rollout(self, samples: Samples, outputs: list[Any]) -> Samples:
        return self.rollout.trainable(super()._postprocess_rollout(samples, outputs))

    def score_completions(self, samples: Samples) -> Tensor:
        """Rewards ``(n, functions)``: NaN is "not scored".

        Raises:
            RewardError: More completions failed than the budget allows.
        """
        self.rows.add_image_columns(samples)
        rewards: Tensor = super().score_completions(samples)
        return self.scoring.settled(samples, rewards) if rewards.shape[1] else rewards

    def _dynamic_sampling(self, samples: Samples, rewards_per_func: Tensor) -> Any:
        """Samples and rewards of groups whose rewards differ by more than rounding."""
        of_groups = self.scoring.baselines.deviations
        name = "compute_std_for_dynamic_sampling"
        with swapped(grpo_trainer, name, lambda rewards, *_: of_groups((), rewards)):
            return super()._dynamic_sampling(samples, rewards_per_func)

    def compute_advantages(self, rewards_per_func: Tensor, kl_values: Tensor | None = None) -> Any:
        """Advantages and rewards ``(n,)`` of an update's completions."""
        advantages, rewards = super().compute_advantages(rewards_per_func, kl_values)
        if rewards_per_func.shape[1]:  # else there is a teacher alone
            self._logs = {"rewards": defaultdict(list)}
            penalty = None if kl_values is None else self.beta * kl_values
            baselines = self.scoring.baselines
            advantages = baselines.of_loss(baselines.advantages((), rewards_per_func, penalty))
        return advantages, rewards

    def _scatter_advantages(self, grpo_batches: list[GRPOBatch], advantages: Tensor) -> None:
        """Hand advantages out; completions that are not scored leave the loss."""
        super()._scatter_advantages(grpo_batches, advantages)
        if (kept := self.scoring.baselines.kept) is not None:
            leave_out(grpo_batches, kept)
        tokens = sum(batch.completion_mask.sum() for batch in grpo_batches)
        for batch in grpo_batches:
            batch.num_items_in_batch = tokens  # ms-swift's is a number, and its losses want a tensor

    @staticmethod
    def _scatter_logps(grpo_batches: list[GRPOBatch], rows: Sequence[dict[str, Any]], key: str) -> None:
        """Without ``rows`` they are the policy's, which the update computes anyway."""
        if rows:
            GRPOTrainer._scatter_logps(grpo_batches, rows, key)

    def _build_grpo_log_metrics(self, *given: Tensor) -> dict[str, float]:
        """The figures of an update that workers log."""
        self.state.global_step += 1
        ours = {name: fmean(values) for name, values in self._metrics["train"].items()}
        self._metrics["train"].clear()
        return super()._build_grpo_log_metrics(*given) | ours


def join(pipeline: ModuleType) -> None:
    """Let ms-swift's Ray pipeline, as it is imported, start our driver and workers.

    A trainer that somebody else has registered stays.

    Raises:
        RefusedError: Something that we change is gone.
    """
    entry = pipeline._TRAINER_REGISTRY.get("grpo")
    if entry != _THEIRS:
        logger.info(f"swift-grpo-ext: Ray trains with {entry}: prompts are not shared")
        return
    require_overridden(Driver, GRPOTrainer, "megatron")
    require_overridden(Worker, megatron_worker.MegatronWorker, "megatron", new="join_driver")
    # The pipeline that loads us holds the entry itself. Without a loss workers take their trainer's own.
    entry.update(trainer="swift_grpo_ext.megatron.ray_driver.Driver", loss=None)
    megatron_worker.MegatronWorker = Worker
    grpo_trainer.GRPOSample = VisionSample
