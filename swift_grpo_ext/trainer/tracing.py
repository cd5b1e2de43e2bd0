"""Looks at log-probs, loss and gradients as they pass by, and names the first that is not finite."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from swift_grpo_ext.ms_swift.shared import GRPOBatch, get_logger
from swift_grpo_ext.settings import disabled
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.host import Host, unwrapped
from swift_grpo_ext.trainer.numerics import bad_gradient, bad_rows, first_bad_module
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

    @contextmanager
    def clipping(self) -> Iterator[None]:
        """While this is open, gradients are looked at before they are clipped; not where they are sharded."""
        if not self.on or self._sharded():
            yield
            return
        accelerator = self._host.accelerator

        def clip_grad_norm_(parameters: Iterable[nn.Parameter], *args: object, **kwargs: object) -> object:
            parameters = list(parameters)
            self._look_at_gradients(parameters)
            # The class's own, which ms-swift replaces while it trains.
            return type(accelerator).clip_grad_norm_(accelerator, parameters, *args, **kwargs)

        with swapped(accelerator, "clip_grad_norm_", clip_grad_norm_):
            yield

    @watches("numerics", reads_device=True)
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
        rows = bad_rows(logps, grpo_batch.completion_mask) if self.on and self._host.model.training else ()
        if not rows:
            return
        inner = unwrapped(model)
        # Where it is sharded, all ranks would have to.
        again = partial(forward, inner, inputs, grpo_batch)
        module = "" if self._sharded() else first_bad_module(inner, again)
        named = self._called([samples[row] for row in rows]) if samples else [str(row) for row in rows]
        self.on = False
        self._tell("log-probs", rows, named, module)

    @watches("numerics", reads_device=True)
    def look_at_loss(self, loss: LossValue | tuple[LossValue, Any]) -> None:
        """Name a loss that is not finite."""
        if self.on and isinstance(loss, Tensor) and not bool(torch.isfinite(loss.detach())):
            self.on = False
            self._tell("loss")

    def _sharded(self) -> bool:
        return self._host.is_deepspeed_enabled or self._host.is_fsdp_enabled

    @watches("numerics", reads_device=True)
    def _look_at_gradients(self, parameters: Sequence[Float[Tensor, "..."]]) -> None:
        host = self._host
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norms = torch.stack(torch._foreach_norm(gradients)) if self.on and gradients else None
        if norms is None or bool(norms.isfinite().all()):
            return
        module = bad_gradient([(name, weight.grad) for name, weight in host.model.named_parameters()])
        self.on = False
        self._tell("gradient", module=module)

    def _tell(
        self, tensor: str, rows: Sequence[int] = (), names: Sequence[str] = (), module: str = ""
    ) -> None:
        """Say where the first value was not finite.

        Args:
            tensor: ``log-probs``, ``loss`` or ``gradient``.
            rows: Of the micro-batch.
            names: What to call the first of them.
            module: First with such an output, or parameter nearest to the loss with such a gradient.
        """
        assert self._journal
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

    def _called(self, samples: Sequence[VisionSample]) -> list[str]:
        """Names for the rows of samples: of the first ones, each once."""
        dataset = self._host.train_dataset
        return list(dict.fromkeys(row_name(sample, dataset) for sample in samples[:_NAMED]))
