"""Looks at log-probs and loss as they pass by, and names the first that is not finite."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from swift_grpo_ext.ms_swift.shared import GRPOBatch, get_logger
from swift_grpo_ext.settings import disabled
from swift_grpo_ext.trainer.host import Host, unwrapped
from swift_grpo_ext.trainer.numerics import bad_rows, first_bad_module
from swift_grpo_ext.trainer.row_names import row_name
from swift_grpo_ext.trainer.samples import Inputs, LossValue, PerToken, VisionSample
from swift_grpo_ext.watch.guard import watches
from swift_grpo_ext.watch.journal import Journal

logger = get_logger()

_NAMED = 8  # completions whose rows a message names, at most: each is looked up in the dataset


class Tracer:
    """Names the first value of a run that is not finite; later ones follow from it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.guard = host.guard
        self._journal: Journal | None = None
        self.on = False  # it still looks at tensors

    def begin(self, journal: Journal) -> None:
        """Look from now on, unless the settings say otherwise."""
        self._journal = journal
        self.on = not disabled("callbacks.trace_numerics")

    @watches("numerics")
    def look_at_pass(
        self,
        logps: PerToken,
        grpo_batch: GRPOBatch,
        forward: Callable[[object, Inputs, GRPOBatch], object],
        model: PreTrainedModel,
        inputs: Inputs,
        samples: Sequence[VisionSample],
    ) -> None:
        """Name rows whose log-probs are not finite, and the module from which that comes."""
        host = self._host
        rows = bad_rows(logps, grpo_batch.completion_mask) if self.on and host.model.training else ()
        if not rows:
            return
        module = ""
        if not (host.is_deepspeed_enabled or host.is_fsdp_enabled):  # else all ranks would have to
            inner = unwrapped(model)
            module = first_bad_module(inner, partial(forward, inner, inputs, grpo_batch))
        names = [row_name(samples[row], host.train_dataset) if samples else str(row) for row in rows[:_NAMED]]
        self._tell("log-probs", rows, list(dict.fromkeys(names)), module)

    @watches("numerics")
    def look_at_loss(self, loss: LossValue | tuple[LossValue, Any]) -> None:
        """Name a loss that is not finite."""
        if self.on and isinstance(loss, Tensor) and not bool(torch.isfinite(loss.detach())):
            self._tell("loss")

    def _tell(
        self, tensor: str, rows: Sequence[int] = (), names: Sequence[str] = (), module: str = ""
    ) -> None:
        """Say where the first value was not finite; the others follow from it.

        Args:
            tensor: ``log-probs`` or ``loss``.
            rows: Of the micro-batch.
            names: What to call the first of them.
            module: First with such an output.
        """
        assert self._journal
        self.on = False
        step = self._host.state.global_step + 1
        rank = self._host.args.process_index
        text = f"{tensor} not finite at step {step} on rank {rank}"
        if module:
            text += f", first in {module}"
        if names:
            text += f", rows {', '.join(names)}"
        if len(rows) > _NAMED:
            text += f" and others, {len(rows)} completions in all"
        # Ranks above the first log errors only.
        logger.log(logging.ERROR if rank else logging.WARNING, f"swift-grpo-ext [numerics] {text}")
        self._journal.add(
            "numerics", step=step, text=text, names=names, tensor=tensor, rows=rows, module=module
        )
