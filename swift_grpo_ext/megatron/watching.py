"""What watches a run with Megatron: the monitors of both trainers, fed by names that they know."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from accelerate.utils import gather, gather_object
from megatron.core import mpu
from swift.callbacks import callbacks_map
from swift.rl_core.data import GRPOBatch
from torch import Tensor

from swift_grpo_ext.megatron.host import Host
from swift_grpo_ext.settings import current_settings, disabled
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.monitors import CALLBACK
from swift_grpo_ext.trainer.samples import VisionSample
from swift_grpo_ext.watch import records
from swift_grpo_ext.watch.guard import Guard, watches
from swift_grpo_ext.watch.metrics import FewFigures
from swift_grpo_ext.watch.watch import Watch


class Watching:
    """Feeds the monitors of one rank. Without the part ``callbacks`` it does nothing."""

    def __init__(self, host: Host) -> None:
        self._host = host
        speaks = host.is_main_process
        self.guard = Guard(0 if speaks else host.process_index or host.world_size)
        self._figures: dict[str, defaultdict[str, list[float]]] = {"train": defaultdict(list)}
        self._few = FewFigures() if current_settings().console == "line" else None
        kind = callbacks_map.get(CALLBACK)
        watched = _watched(host, self._figures, self.guard)
        self.watch: Watch | None = kind(watched.args, watched) if kind else None

    def phase(self, name: str) -> AbstractContextManager[None]:
        """While this is open, the run is in a phase."""
        return self.watch.phases.within(name) if self.watch and name else nullcontext()

    @contextmanager
    def training(self) -> Iterator[None]:
        """While this is open, the run trains; DeadRunError afterwards says that it could not learn."""
        if not self.watch:
            yield
            return
        try:
            yield
        except BaseException as error:
            self.watch.failed(error)
            raise
        finally:
            self.watch.close()
        try:
            self.watch.end()
        finally:
            self._report()

    def begin(self) -> None:
        """Model and optimizer are ready."""
        if self.watch:
            state = self._host.state
            self.watch.on_train_begin(None, SimpleNamespace(max_steps=state.max_steps), None)

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

    def end_step(self, grad_norm: float | None, updated: bool) -> bool:
        """An optimizer step is done; True if the run is to end now. Every rank comes here."""
        if not self.watch:
            return False
        self.watch.phases.rest_in("between")
        norm = None if grad_norm is None else float(grad_norm)
        return self.watch.end_step(self._host.state.global_step + 1, norm, not updated)

    @watches("policy figures", reads_device=True)
    def add_policy(self, grpo_batch: GRPOBatch, logps: Tensor) -> None:
        """Count the tokens of the policy's pass, on one of the ranks that have its log-probs."""
        if not self.watch or not self._host.unwrapped_models[0].training:
            return
        if mpu.get_tensor_model_parallel_rank() or mpu.get_context_parallel_rank():
            return
        counted = self.watch.tally
        mask = grpo_batch.completion_mask
        counted.tokens = counted.tokens + mask.sum()
        counted.forwarded = counted.forwarded + mask.sum()
        counted.surprise = counted.surprise - logps.detach()[mask.bool()].sum()

    def look_at_rollout(self, samples: Sequence[VisionSample], rewards: Tensor) -> None:
        """A generation batch, of which this rank has some, has its advantages. Every rank comes here."""
        if not self.watch or not self._host.unwrapped_models[0].training:
            return
        texts = gather_object([str(sample.messages[-1]["content"]) for sample in samples])
        every = gather(rewards)
        if self._host.is_main_process:
            facts = self.guard.run("rollout figures", lambda: self._facts(texts, every))
            self.watch.rollout = facts or self.watch.rollout

    def figures(self) -> dict[str, float]:
        """The figures of the last steps for the log."""
        logged = self._few.of(self._figures["train"]) if self._few else self._figures["train"]
        found = {name: sum(values) / len(values) for name, values in logged.items() if values}
        self._figures["train"].clear()
        return found

    def _facts(self, texts: list[str], rewards: Tensor) -> records.RolloutFacts:
        host = self._host
        size = host.num_generations
        last = {name: values[-1] for name, values in host._metrics["train"].items() if values}
        figures = {name: float(value) for name, value in last.items() if value is not None}
        advantages = list(host._logs["advantages"])[-len(rewards) :]
        return records.RolloutFacts(
            groups=len(texts) // size,
            rewards=tuple(
                records.reward_facts(name, column, round(figures.get(f"rewards/{name}/infinite", 0)))
                for name, column in zip(host.reward_func_names, rewards.T.tolist(), strict=False)
            ),
            reward_std=figures.get("reward_std"),
            advantaged=records.advantaged_share(advantages, figures),
            zero_variance=figures.get("frac_reward_zero_std"),
            identical=records.identical_share(texts, size),
            clipped=None,
            empty=records.empty_share(texts),
            example="",
        )

    @watches("report")
    def _report(self) -> None:
        if not self._host.is_main_process or disabled("callbacks.report"):
            return
        from swift_grpo_ext.watch.report import report_at_end  # loads what draws

        report_at_end(self._host.args.output_dir)


def _watched(host: Host, figures: dict[str, Any], guard: Guard) -> Any:
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
        gradient_accumulation_steps=args.num_microbatches,
    )
    return SimpleNamespace(
        args=arguments,
        state=host.state,
        optimizer=host.optimizer,
        model=host.unwrapped_models[0],
        accelerator=host.accelerator,
        sample_cls=VisionSample,
        num_generations=host.num_generations,
        beta=host.beta,
        is_deepspeed_enabled=False,
        is_fsdp_enabled=False,
        guard=guard,
        _metrics=figures,
    )
