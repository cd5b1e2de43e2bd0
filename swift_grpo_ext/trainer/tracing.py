"""Looks at log-probs, loss, gradients and rewards as they pass by, and names the first that is not finite."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from swift_grpo_ext.ms_swift.shared import GRPOBatch, get_logger
from swift_grpo_ext.rewards.runtime.ledger import Failure, record_failure
from swift_grpo_ext.settings import disabled
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.host import Host, unwrapped
from swift_grpo_ext.trainer.row_names import row_name
from swift_grpo_ext.trainer.samples import LossValue, PerToken, VisionSample
from swift_grpo_ext.watch.guard import watches
from swift_grpo_ext.watch.journal import Journal
from swift_grpo_ext.watch.numerics import Fault, bad_gradient, bad_rows, first_bad_module

logger = get_logger()

Inputs = Mapping[str, object] | None
_NAMED = 8  # completions whose rows a message names, at most: each is looked up in the dataset


class Tracer:
    """Names the first value of a run that is not finite, and keeps its batch; later ones follow from it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.guard = host.guard
        self._journal: Journal | None = None
        self._on_rewards = False
        self.on = False  # it still looks at tensors

    def begin(self, journal: Journal) -> None:
        """Look from now on, unless the settings say otherwise."""
        self._journal = journal
        self.on = self._on_rewards = not disabled("callbacks.trace_numerics")

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

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """While this is open, the policy samples, which fails on NaN.

        Raises:
            RuntimeError: torch's own, once the weights were looked at.
        """
        try:
            yield
        except RuntimeError as error:
            if self.on and "probability tensor" in str(error):
                self._look_at_weights()
            raise

    @watches("numerics", reads_device=True)
    def look_at_rewards(self, samples: Sequence[VisionSample]) -> None:
        """Name completions whose score is not finite: they count as not scored."""
        host = self._host
        if not self._on_rewards or not host.model.training:
            return
        plugins = host.reward_model_plugins
        for name, function, plugin in zip(host.reward_func_names, host.reward_funcs, plugins, strict=False):
            if rows := (plugin or function).not_finite:
                self._name_reward(Fault(f"reward {name}", rows), name, samples)

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
        self._name_fault(Fault("log-probs", rows, module), inputs, grpo_batch, named)

    @watches("numerics", reads_device=True)
    def look_at_loss(self, loss: LossValue | tuple[LossValue, Any], batch: Any) -> None:
        """Name a loss that is not finite."""
        if self.on and isinstance(loss, Tensor) and not bool(torch.isfinite(loss.detach())):
            first = batch[0] if isinstance(batch, list) else batch
            self._name_fault(Fault("loss"), first["model_inputs"], first["grpo_batch"])

    def _sharded(self) -> bool:
        return self._host.is_deepspeed_enabled or self._host.is_fsdp_enabled

    @watches("numerics", reads_device=True)
    def _look_at_weights(self) -> None:
        """Name the first weight that is not finite: rollouts break on it before any log-prob does."""
        for name, weight in self._host.model.named_parameters():
            if self.on and not bool(weight.isfinite().all()):
                self.on = False
                self._tell(Fault("weights", module=name), [], self._dump_path("safetensors"))

    @watches("numerics", reads_device=True)
    def _look_at_gradients(self, parameters: Sequence[Float[Tensor, "..."]]) -> None:
        host = self._host
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norms = torch.stack(torch._foreach_norm(gradients)) if self.on and gradients else None
        if norms is None or bool(norms.isfinite().all()):
            return
        module = bad_gradient([(name, weight.grad) for name, weight in host.model.named_parameters()])
        batches = host._buffered_inputs
        last = batches[(host._step - 1) % len(batches)] if batches else {}
        self._name_fault(Fault("gradient", module=module), last.get("model_inputs"), last.get("grpo_batch"))

    def _name_fault(
        self, fault: Fault, model_inputs: Inputs, grpo_batch: GRPOBatch, names: Sequence[str] = ()
    ) -> None:
        """Say where the first value was not finite, and keep its batch."""
        assert self._journal
        self.on = False
        dump = self._dump_path("safetensors")
        self._journal.write(lambda: _dump(dump, model_inputs, grpo_batch))
        self._tell(fault, names, dump)

    def _name_reward(self, fault: Fault, name: str, samples: Sequence[VisionSample]) -> None:
        """The same of a reward, whose completions count as not scored, so that nothing follows from it."""
        assert self._journal
        self._on_rewards = False
        dump = self._dump_path("jsonl")
        chosen = [samples[row] for row in fault.rows]
        for sample in chosen:
            *prompt, answer = sample.messages
            failure = Failure(name, "error", "a score that is not finite", "")
            columns = {"messages": prompt, "images": sample.images, **sample.extra}
            self._journal.write(partial(record_failure, dump, failure, answer["content"], columns))
        self._tell(fault, self._called(chosen), dump)

    def _dump_path(self, ending: str) -> Path:
        assert self._journal
        step = self._host.state.global_step + 1
        rank = self._host.args.process_index
        return self._journal.folder / f"numerics_step_{step}_rank_{rank}.{ending}"

    def _tell(self, fault: Fault, names: Sequence[str], dump: Path) -> None:
        assert self._journal
        step = self._host.state.global_step + 1
        rank = self._host.args.process_index
        more = f" and others, {len(fault.rows)} completions in all" if len(fault.rows) > _NAMED else ""
        rows = f", rows {', '.join(names)}{more}" if names else ""
        module = f", first in {fault.module}" if fault.module else ""
        kept = f"; batch kept in {dump}" if dump.exists() else ""
        text = f"{fault.tensor} not finite at step {step} on rank {rank}{module}{rows}{kept}"
        # Of ranks above the first ms-swift's logger lets errors alone through.
        logger.log(logging.ERROR if rank else logging.WARNING, f"swift-grpo-ext [numerics] {text}")
        self._journal.add(
            "numerics", step=step, text=text, dump=str(dump), names=list(names), **asdict(fault)
        )

    def _called(self, samples: Sequence[VisionSample]) -> list[str]:
        """What to call the rows of samples: of the first ones, each once."""
        dataset = self._host.train_dataset
        return list(dict.fromkeys(row_name(sample, dataset) for sample in samples[:_NAMED]))


def _dump(path: Path, model_inputs: Inputs, grpo_batch: GRPOBatch) -> None:
    """Write the tensors of a micro-batch: what the model gets, and as ``batch.*`` the rest.

    Raises:
        OSError: They cannot be written.
    """
    batch = {f"batch.{name}": value for name, value in (vars(grpo_batch) if grpo_batch else {}).items()}
    named = {**(model_inputs or {}), **batch}
    tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
    plain = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    try:
        save_file(plain, str(path))
    except SafetensorError as error:  # its kind for a full disk, too
        raise OSError(str(error)) from None
