"""Held-out rewards with Megatron: the same rows in each evaluation, whose scores lie on several ranks."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import gather
from megatron.core import mpu
from swift.megatron.trainers.batch_sampler import MegatronPretrainingSampler

from swift_grpo_ext.megatron.host import rows_of_evaluation_batch
from swift_grpo_ext.megatron.scoring import ranks_in_order
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.held_out import HeldOut
from swift_grpo_ext.trainer.held_out_rows import HeldOutRows
from swift_grpo_ext.trainer.samples import Rewards
from swift_grpo_ext.watch.held_out import HeldOutHistory


class MegatronHeldOut(HeldOut):
    """Held-out rewards of one rank.

    ms-swift goes on in its validation rows from one evaluation to the next; here each evaluation begins with
    the first row.
    """

    def __init__(self, host: Any, settings: Settings) -> None:
        super().__init__(host, settings)
        self._host: Any = host
        self._rows: WholeBatches = WholeBatches(host, settings)
        self._loader: Any = None
        self.figures: dict[str, float] = {}  # of the newest evaluation

    def begin(self, logged_names: Mapping[str, str]) -> None:
        """The datasets are known: `features.decide` has said whether it evaluates."""
        self.active = "held_out" in self._host.passes.enabled
        if self.active:
            self._choose_metric(logged_names)
            # ms-swift looks for it among figures that have no ``eval_`` here.
            args = self._host.args
            args.metric_for_best_model = args.metric_for_best_model.removeprefix("eval_")

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """While this is open, ms-swift evaluates all of the chosen rows."""
        with super().evaluating():
            iterations = self._rows.iterations if self.active else self._host.args.eval_iters
            with swapped(self._host.args, "eval_iters", iterations):
                yield

    def from_the_first(self, rows: Any) -> Any:
        """Micro-batches of this rank's part of the chosen rows; ``rows`` if ms-swift evaluates by itself."""
        if not self.active:
            return rows
        host = self._host
        if self._loader is None:
            sampler = MegatronPretrainingSampler(
                total_samples=len(host.eval_dataset),
                consumed_samples=0,
                micro_batch_size=host.args.micro_batch_size,
                data_parallel_rank=mpu.get_data_parallel_rank(),
                data_parallel_size=mpu.get_data_parallel_world_size(),
            )
            self._loader = host._create_dataloader(host.eval_dataset, sampler)
        return iter(self._loader)

    def collect(self, rewards: Rewards) -> None:
        """Keep the scores of an evaluation's batch, of which this rank has some. Every rank comes here."""
        if self._evaluating:
            order = ranks_in_order(self._host)
            parts = gather(rewards).chunk(len(order))
            super().collect(torch.cat([parts[rank] for rank in order]))

    def _log(self, figures: dict[str, float]) -> None:
        self.figures = figures

    def _save_and_stop(self) -> None:
        self._host.args.train_iters = self._host.state.iteration
        self._host.state.should_save = True


class WholeBatches(HeldOutRows):
    """The rows of every evaluation of a run: as many as fill generation batches of all ranks."""

    _host: Any

    @property
    def iterations(self) -> int:
        """Generation batches of an evaluation."""
        return len(self._host.eval_dataset) // self._batch()

    def _affordable(self, total: int, history: HeldOutHistory) -> int:
        size = super()._affordable(total, history)
        return max(1, size // self._batch()) * self._batch()

    def _batch(self) -> int:
        return rows_of_evaluation_batch(self._host)

    def _steps_between(self) -> float:
        return float(self._host.args.eval_steps)
