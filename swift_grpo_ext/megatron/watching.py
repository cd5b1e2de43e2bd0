"""Monitors of a run with Megatron: those of both trainers, fed by names that they know."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from accelerate.utils import gather, gather_object
from megatron.core import mpu
from swift.callbacks import callbacks_map
from swift.rl_core.data import GRPOBatch
from torch import Tensor

from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.engine_check import EngineCheck
from swift_grpo_ext.trainer.monitors import CALLBACK, Monitors
from swift_grpo_ext.trainer.samples import VisionSample
from swift_grpo_ext.watch.metrics import FewFigures
from swift_grpo_ext.watch.watch import Watch


class Watching(Monitors):
    """The monitors of one rank, where ms-swift builds no callbacks. Without the part it does nothing."""

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self._figures: dict[str, defaultdict[str, list[float]]] = {"train": defaultdict(list)}
        self._few = FewFigures() if current_settings().console == "line" else None
        kind = callbacks_map.get(CALLBACK)
        watched = _watched(host, self._figures)
        self.watch: Watch | None = kind(watched.args, watched) if kind else None
        self.engine_check = EngineCheck(host, self.guard, "engine_check" in host.passes.features)

    def begin(self) -> None:
        """Model and optimizer are ready. Every rank comes here.

        Raises:
            RefusedError: Nothing is trained, on no stage of a pipeline.
        """
        if self.watch:
            trains = any(each.requires_grad for each in self._host.model.parameters())
            self.watch.begin(self._host.state, bool(agreed_max(int(trains), self._host.accelerator.device)))

    @contextmanager
    def step(self) -> Iterator[None]:
        """While this is open, an update is made: forward passes, backward passes and the optimizer's step."""
        if not self.watch:
            yield
            return
        self.watch.on_step_begin(None, None, None)
        optimizer = self._host.optimizer
        stock = optimizer.step

        def timed() -> Any:
            with self.phase("optimizer"):
                return stock()

        with self.phase("backward"), swapped(optimizer, "step", timed):
            yield

    def end_update(self, grad_norm: float | None, updated: bool) -> bool:
        """An optimizer step is done; True if the run is to end now. Every rank comes here."""
        if not self.watch:
            return False
        self._rest_in("between")
        norm = None if grad_norm is None else float(grad_norm)
        step = self._host.state.global_step
        return self.watch.end_step(step + 1, norm, not updated, self.engine_check.compare())

    def add_policy(self, grpo_batch: GRPOBatch, logps: Tensor, first_update: bool) -> None:
        """Count the tokens of the policy's pass, on one of the ranks that have its log-probs.

        Before the first update over a generation batch they are those that the engine should have sampled by.
        """
        if mpu.get_tensor_model_parallel_rank() or mpu.get_context_parallel_rank():
            return
        self.add_pass(logps, grpo_batch, None)
        if first_update:
            self.engine_check.add(grpo_batch, logps)

    def look_at_rewards(self, samples: Sequence[VisionSample], rewards: Tensor) -> None:
        """A generation batch, of which this rank has some, has its advantages. Every rank comes here."""
        if not self.watch or not self._host.model.training:
            return
        texts = gather_object([str(sample.messages[-1]["content"]) for sample in samples])
        every = gather(rewards)
        if self._host.accelerator.is_main_process:
            facts = self.guard.run("rollout figures", lambda: self._facts(texts, every, samples))
            self.watch.rollout = facts or self.watch.rollout

    def figures(self) -> dict[str, float]:
        """The figures of the last steps for the log."""
        logged = self._few.of(self._figures["train"]) if self._few else self._figures["train"]
        means = {name: sum(values) / len(values) for name, values in logged.items() if values}
        self._figures["train"].clear()
        return means


def _watched(host: Any, figures: dict[str, Any]) -> Any:
    """The trainer by the names that transformers has for what the monitors read."""
    args = host.args
    arguments = SimpleNamespace(
        process_index=host.process_index,
        speaks=host.is_main_process,
        world_size=host.world_size,
        device=torch.device(host.device),
        output_dir=args.output_dir,
        should_save=False,
        temperature=args.temperature,
        learning_rate=args.lr,
    )
    return SimpleNamespace(
        args=arguments,
        state=host.state,
        optimizer=host.optimizer,
        model=host.unwrapped_models[0],
        accelerator=host.accelerator,
        num_generations=host.num_generations,
        beta=host.beta,
        scoring=host.scoring,
        guard=host.guard,
        _metrics=figures,
    )
