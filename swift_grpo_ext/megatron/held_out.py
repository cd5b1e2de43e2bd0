"""Held-out rewards with Megatron: whole generation batches of rows, whose scores lie on several ranks."""

from collections.abc import Iterator
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
from swift_grpo_ext.trainer.samples import Rewards


class MegatronHeldOut(HeldOut):
    """Held-out rewards of Megatron's trainer.

    ms-swift goes on in its validation rows from one evaluation to the next; here each evaluation begins with
    the first row.
    """

    def __init__(self, host: Any, settings: Settings) -> None:
        super().__init__(host, settings)
        self._loader: Any = None
        self.figures: dict[str, float] = {}  # of the newest evaluation

    def begin(self) -> None:
        """The datasets are known: `features.decide` has said whether it evaluates."""
        if "held_out" in self._host.passes.features:
            self._begin()
            # ms-swift looks for it among figures that have no ``eval_`` here.
            args = self._host.args
            args.metric_for_best_model = args.metric_for_best_model.removeprefix("eval_")

    def _batch(self) -> int:
        return rows_of_evaluation_batch(self._host)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """While this is open, ms-swift evaluates all of the chosen rows."""
        args = self._host.args
        iterations = len(self._host.eval_dataset) // self._batch() if self.active else args.eval_iters
        with super().evaluating(), swapped(args, "eval_iters", iterations):
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
