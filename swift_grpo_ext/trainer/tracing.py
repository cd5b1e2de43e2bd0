"""The trainer's side of the numerics tracer: looks at log-probs, loss and gradients as they pass by."""

from __future__ import annotations

from copy import copy
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from swift.utils import get_logger
from torch import Tensor

from swift_grpo_ext.rewards.runtime import replay
from swift_grpo_ext.rewards.runtime.ledger import Failure
from swift_grpo_ext.settings import disabled
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.passes import restore_pixels
from swift_grpo_ext.watch.numerics import Fault, bad_gradient, bad_rows, first_bad_module
from swift_grpo_ext.watch.rollout import row_name

logger = get_logger()

_NAMED = 8
"""Completions whose rows a message names, at most: each is looked up in the dataset."""


class Tracing:
    """Mixin that names the first value of a run that is not finite. Goes before `Watching` in the bases."""

    _traces = False
    _traces_rewards = False
    _chunks: list[list[Any]] = []  # noqa: RUF012  samples of each micro-batch of the last rollout

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._traces = self._traces_rewards = bool(self.watch) and not disabled("callbacks.trace_numerics")

    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Train, with gradients looked at before they are clipped."""
        sharded = self.is_deepspeed_enabled or self.is_fsdp_enabled
        if not self._traces or sharded:
            return super().train(*args, **kwargs)  # type: ignore[misc]
        accelerator = self.accelerator

        def clip_grad_norm_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            parameters = list(parameters)
            self._look_at_gradients(parameters)
            # The class's own, which the host replaces while it trains.
            return type(accelerator).clip_grad_norm_(accelerator, parameters, *args, **kwargs)

        with swapped(accelerator, "clip_grad_norm_", clip_grad_norm_):
            return super().train(*args, **kwargs)  # type: ignore[misc]

    def _generate_completions(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._generate_completions(*args, **kwargs)  # type: ignore[misc]
        except RuntimeError as error:
            if self._traces and "probability tensor" in str(error):  # sampling, from NaN
                self._look_at_weights()
            raise

    def _look_at_weights(self: Any) -> None:
        """Name the first weight that is not finite: rollouts break on it before any log-prob does."""
        bad = (name for name, weight in self.model.named_parameters() if not bool(weight.isfinite().all()))
        name = next(bad, "")
        if name:
            self._traces = False
            self._tell(Fault("weights", module=name), [], self._dump_path("safetensors"))

    def _prepare_batch_inputs(self: Any, samples: list[Any]) -> list[dict[str, Any]]:
        self._chunks = []
        result: list[dict[str, Any]] = super()._prepare_batch_inputs(samples)  # type: ignore[misc]
        if self._traces and self.template.sequence_parallel_size == 1:
            chunks = self.split_by_mini_batches(samples)
            self._chunks = [[_without_inputs(sample) for sample in chunk] for chunk in chunks]
        return result

    def _compute_rewards_per_func(self: Any, samples: list[Any]) -> Tensor:
        rewards: Tensor = super()._compute_rewards_per_func(samples)  # type: ignore[misc]
        plugins = self.reward_model_plugins
        for name, function, plugin in zip(self.reward_func_names, self.reward_funcs, plugins, strict=False):
            guard = getattr(plugin, "guard", function)
            rows = getattr(guard, "not_finite", ())
            if rows and self._traces_rewards and self.model.training:
                self._tell_reward(Fault(f"reward {name}", rows), name, samples)
        return rewards

    def _get_per_token_logps_and_entropies(
        self: Any, model: Any, model_inputs: Any, grpo_batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        parent = super()._get_per_token_logps_and_entropies  # type: ignore[misc]
        result = parent(model, model_inputs, grpo_batch, *args, **kwargs)
        if self._traces and self.model.training:
            rows = bad_rows(result[0], grpo_batch.completion_mask)
            if rows:
                module = ""
                if not self.is_deepspeed_enabled and not self.is_fsdp_enabled:  # else all ranks would have to
                    inner = self.accelerator.unwrap_model(model)
                    module = first_bad_module(inner, lambda: parent(inner, model_inputs, grpo_batch))
                self._tell_fault(Fault("log-probs", rows, module), model_inputs, grpo_batch)
        return result

    def compute_loss(self: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The loss, looked at."""
        loss = super().compute_loss(model, inputs, *args, **kwargs)  # type: ignore[misc]
        if self._traces and isinstance(loss, Tensor) and not bool(torch.isfinite(loss.detach())):
            batch = inputs[0] if isinstance(inputs, list) else inputs
            self._tell_fault(Fault("loss"), batch["model_inputs"], batch["grpo_batch"])
        return loss

    def _look_at_gradients(self: Any, parameters: list[Tensor]) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if not self._traces or not gradients:
            return
        if bool(torch.stack(torch._foreach_norm(gradients)).isfinite().all()):
            return
        named = [(name, parameter.grad) for name, parameter in self.model.named_parameters()]
        last = self._buffered_inputs[self._micro_batch()] if self._buffered_inputs else {}
        fault = Fault("gradient", module=bad_gradient(named))
        self._tell_fault(fault, last.get("model_inputs"), last.get("grpo_batch"))

    def _micro_batch(self: Any) -> int:
        return int((self._step - 1) % len(self._buffered_inputs))

    def _tell_fault(self: Any, fault: Fault, model_inputs: Any, grpo_batch: Any) -> None:
        """Say where the first value was not finite, and keep its batch; later ones follow from it."""
        self._traces = False
        dump = self._dump_path("safetensors")
        if model_inputs:
            restore_pixels(model_inputs, grpo_batch)
        self.watch.journal.write(lambda: _dump(dump, model_inputs, grpo_batch))
        self._tell(fault, self._names_of(fault.rows), dump)

    def _tell_reward(self: Any, fault: Fault, name: str, samples: list[Any]) -> None:
        """The same of a reward, whose completions count as not scored, so that nothing follows from it."""
        self._traces_rewards = False
        dump = self._dump_path("jsonl")
        names = self._called([samples[row] for row in fault.rows])
        for sample in (samples[row] for row in fault.rows):
            failure = Failure(name, "error", "a score that is not finite", "")
            columns = {"messages": sample.messages[:-1], "images": sample.images, **sample.extra}
            record = partial(replay.record, dump, failure, sample.messages[-1]["content"], columns)
            self.watch.journal.write(record)
        self._tell(fault, names, dump)

    def _dump_path(self: Any, ending: str) -> Path:
        step, rank = self.state.global_step + 1, self.args.process_index
        return Path(self.watch.journal.folder / f"numerics_step_{step}_rank_{rank}.{ending}")

    def _tell(self: Any, fault: Fault, names: list[str], dump: Path) -> None:
        step, rank = self.state.global_step + 1, self.args.process_index
        more = f" and others, {len(fault.rows)} completions in all" if len(fault.rows) > _NAMED else ""
        rows = f", rows {', '.join(names)}{more}" if names else ""
        module = f", first in {fault.module}" if fault.module else ""
        kept = f"; batch kept in {dump}" if dump.exists() else ""
        text = f"{fault.tensor} not finite at step {step} on rank {rank}{module}{rows}{kept}"
        logger.warning(f"swift-grpo-ext [numerics] {text}")
        self.watch.journal.add("numerics", step=step, text=text, dump=str(dump), names=names, **asdict(fault))

    def _names_of(self: Any, rows: tuple[int, ...]) -> list[str]:
        """What to call rows of the micro-batch at hand; their numbers in it where its samples are unknown."""
        if not torch.is_grad_enabled() or not self._chunks:
            return [str(row) for row in rows]
        chunk = self._chunks[self._step % len(self._chunks)]
        return self._called([chunk[row] for row in rows if row < len(chunk)])

    def _called(self: Any, samples: list[Any]) -> list[str]:
        """What to call the rows of samples: of the first ones, each once."""
        return list(dict.fromkeys(row_name(sample, self.train_dataset) for sample in samples[:_NAMED]))


def _without_inputs(sample: Any) -> Any:
    """A sample's copy to be named by: its encoding holds pixels, and would be kept until the next rollout."""
    named = copy(sample)
    named.encoded = None
    return named


def _dump(path: Path, model_inputs: Any, grpo_batch: Any) -> None:
    """Write the tensors of a micro-batch, as safetensors: what the model gets, and ``batch.*``.

    Raises:
        OSError: It cannot be written.
    """
    tensors = {name: value for name, value in (model_inputs or {}).items() if isinstance(value, Tensor)}
    if grpo_batch is not None:
        for field in fields(grpo_batch):
            value = getattr(grpo_batch, field.name)
            if isinstance(value, Tensor):
                tensors[f"batch.{field.name}"] = value
    plain = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    try:
        save_file(plain, str(path))
    except SafetensorError as error:  # its kind for a full disk, too
        raise OSError(str(error)) from None
