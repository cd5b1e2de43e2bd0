"""Steps that run out of memory: run in halves if all ranks can, else an error names what sets their size."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import nn

from swift_grpo_ext.group.cut import SWITCH
from swift_grpo_ext.ms_swift.shared import get_logger
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.distributed import agreed_max, is_alone, waits_for_gradients
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import Batch, LossValue, Row

OURS = "swift-grpo-ext: "  # beginning of the line that names what to set


@contextmanager
def named_while_generating() -> Iterator[None]:
    """Say what sets the size of a rollout: halves of micro-batches would not make it smaller.

    Raises:
        torch.OutOfMemoryError: Memory runs out inside.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise torch.OutOfMemoryError(
            f"{error}\n{OURS}completions do not fit while they are generated -> --use_vllm true (there a "
            "smaller --vllm_gpu_memory_utilization), or a smaller --max_completion_length or "
            "--steps_per_generation"
        ) from error


class Halves:
    """In how many parts each micro-batch is computed: one, and twice as many whenever memory runs out."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.parts = 1
        self._inputs: Batch | None = None  # of the first step
        self._logged: dict[str, int] = {}  # values of each figure before its loss
        self._tried = False  # a whole micro-batch has run, backward pass included

    def halve(self, error: BaseException | None) -> None:
        """Compute each micro-batch in twice as many parts from now on. Every rank must come here.

        Gives up where rows cannot be halved, or gradients are reduced while they are computed.
        """
        host = self._host
        rows = host.args.per_device_train_batch_size
        if self.parts * 2 > rows or host.is_deepspeed_enabled or host.is_fsdp_enabled:
            self.give_up(error)
        self.parts *= 2
        torch.cuda.empty_cache()
        if host.accelerator.is_main_process:
            get_logger().warning(
                f"swift-grpo-ext: out of memory: each micro-batch of {rows} is now split into {self.parts} "
                f"parts and recomputed in the backward pass; {self._smaller(self.parts)} avoids that"
            )

    def give_up(self, error: BaseException | None) -> NoReturn:
        """End the run with what the device said, and what to set.

        Raises:
            torch.OutOfMemoryError: Always; from ``error``, if it was this rank's memory that ran out.
        """
        said = str(error or "another rank ran out of memory").strip()
        if error and OURS in said:  # it has been named already
            raise error
        raise torch.OutOfMemoryError(
            f"{said}\n{OURS}a micro-batch of {self._host.args.per_device_train_batch_size} does not fit -> "
            f"{self._smaller(2 * self.parts)}"
        ) from error

    def _smaller(self, parts: int) -> str:
        args = self._host.args
        rows = args.per_device_train_batch_size // parts
        if not rows:
            return "a smaller --max_completion_length or --max_pixels (a micro-batch of 1 is the smallest)"
        steps = args.per_device_train_batch_size * args.gradient_accumulation_steps // rows
        sizes = f"--per_device_train_batch_size {rows} --gradient_accumulation_steps {steps}"
        return f"{SWITCH}=0 with {sizes}"

    def step(self, step: Callable[[], LossValue], model: nn.Module) -> LossValue:
        """Forward and backward of one micro-batch; only a run's first can be begun again."""
        host = self._host
        while not self._tried:
            before = host._step
            self._logged = {}
            loss, error = self._first(step, model)
            if not agreed_max(int(error is not None), host.accelerator.device):
                self._tried = True
                self._inputs = None
                assert loss is not None
                return loss
            model.zero_grad(set_to_none=True)
            host._step = before  # which a rank without the error has gone on from
            for name, values in host._metrics["train"].items():
                del values[self._logged.get(name, 0) :]
            self.halve(error)
        try:
            return step()
        except torch.OutOfMemoryError as error:
            self.give_up(error)

    def _first(
        self, step: Callable[[], LossValue], model: nn.Module
    ) -> tuple[LossValue | None, BaseException | None]:
        """The loss, or the error if no rank waits for what this one has not computed.

        Raises:
            torch.OutOfMemoryError: A rollout does not fit, or other ranks wait already.
        """
        host = self._host
        computed = list[bool]()
        prepare = host._prepare_inputs
        loss_of = host.compute_loss

        def prepared(given: list[Row]) -> Batch:
            if self._inputs is None:
                self._inputs = prepare(given)
            self._logged = {name: len(values) for name, values in host._metrics["train"].items()}
            return self._inputs

        def noted(*given: Any, **options: Any) -> LossValue:
            loss = loss_of(*given, **options)
            computed.append(True)
            return loss

        try:
            with swapped(host, "_prepare_inputs", prepared), swapped(host, "compute_loss", noted):
                return step(), None
        except torch.OutOfMemoryError as error:
            if OURS in str(error):
                raise
            reduces = waits_for_gradients() and getattr(model, "require_backward_grad_sync", True)
            # Before the loss other ranks wait in the forward, after it in the reduction of gradients.
            if reduces if computed else not is_alone():
                self.give_up(error)
            return None, error.with_traceback(None)  # its frames hold the graph
