"""The trainer's side of the monitors: tells them phases, figures and samples as they pass by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import Any

import torch
from swift.callbacks import callbacks_map
from swift.rlhf_trainers.utils import collate_to_grpo_micro_batch, encode_sample
from swift.trainers import disable_gradient_checkpointing

from swift_grpo_ext.settings import current_settings, disabled
from swift_grpo_ext.watch.probe import Probe
from swift_grpo_ext.watch.rollout import advantaged_share, described, rollout_facts
from swift_grpo_ext.watch.watch import Watch

CALLBACK = "ext_watch"

# The host's methods that make up a phase.
_PHASES = {
    "get_batch_samples": "data",
    "_generate_completions": "rollout",
    "_move_model_to_vllm": "weight_sync",
    "_compute_rewards_per_func": "reward",
    "_prepare_batch_inputs": "logps",
    "compute_loss": "forward",
    "training_step": "backward",  # less the phases inside it
    "_save_checkpoint": "save",
    "evaluate": "evaluate",
}


def _in_phases(cls: type) -> type:
    """Give the class an override of each method of `_PHASES` that runs the host's in that phase."""

    def override(name: str, phase: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            with self._phase(phase):
                return getattr(super(cls, self), name)(*args, **kwargs)

        method.__name__ = name
        return method

    for name, phase in _PHASES.items():
        if name not in vars(cls):
            setattr(cls, name, override(name, phase))
    return cls


@_in_phases
class Watching:
    """Mixin of the host's GRPO trainer that feeds `swift_grpo_ext.watch`.

    Without the part ``callbacks`` it does nothing.
    """

    watch: Watch | None = None
    _judged_step = 0

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        every = current_settings().kl_every
        if self.watch and every and self.beta == 0 and self.template.sequence_parallel_size == 1:
            self.watch.probe = Probe(self._logps_of, every)

    def _get_callbacks(self: Any, args: Any) -> list[Any]:
        callbacks: list[Any] = super()._get_callbacks(args)  # type: ignore[misc]
        kind = callbacks_map.get(CALLBACK)
        if kind is None:
            return callbacks
        if not any(isinstance(callback, kind) for callback in callbacks):
            callbacks.append(kind(args, self))
        self.watch = next(callback.watch for callback in callbacks if isinstance(callback, kind))
        return callbacks

    def _phase(self, phase: str) -> AbstractContextManager[None]:
        return self.watch.phases.within(phase) if self.watch else nullcontext()

    def train(self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train; write down how it ended, and close the monitors' books."""
        if not self.watch:
            return super().train(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]
        self.watch.resumed_from = resume_from_checkpoint or ""
        try:
            result = super().train(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]
        except BaseException as error:
            self.watch.failed(error)
            raise
        finally:
            self.watch.close()
        try:
            self.watch.end()
        finally:
            if self.args.process_index == 0 and not disabled("callbacks.report"):
                from swift_grpo_ext.watch.report.at_end import report_at_end  # loads what draws

                report_at_end(self.args.output_dir)
        return result

    def training_step(self: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """One micro-batch; what follows the last one of a step is the optimizer's."""
        if not self.watch:
            return super().training_step(*args, **kwargs)  # type: ignore[misc]
        with self._phase("backward"):
            loss: torch.Tensor = super().training_step(*args, **kwargs)  # type: ignore[misc]
        self.watch.tally.loss = self.watch.tally.loss + loss.detach()
        if self.accelerator.sync_gradients:
            self.watch.phases.rest_in("optimizer")
        return loss

    def _log_rollout(self: Any, samples: list[Any]) -> None:
        super()._log_rollout(samples)  # type: ignore[misc]
        if not self.watch or not self.model.training:
            return
        if self.accelerator.is_main_process:
            self.watch.rollout = self._rollout_facts(samples)
        if self.watch.probe and not self.dynamic_num_samples:
            with self._phase("logps"):
                found = self.watch.probe.look(samples[:: self.num_generations], self.state.global_step)
            if found:
                self.watch.tally.kl, self.watch.tally.kl_tokens = found

    def _logps_of(self: Any, samples: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probs of completions under the policy, and the mask of their tokens, ``(batch, seq)``."""
        samples = [copy(sample) for sample in samples]
        with self._template_context(self.template):
            for sample in samples:
                sample.encoded = encode_sample(sample, self.template)
                sample.encoded.pop("_extra_kwargs", None)
            inputs, batch = collate_to_grpo_micro_batch(
                samples, self.template, device=self.accelerator.device, use_logits_to_keep=True
            )
        inputs.pop("labels", None)
        self.model.eval()  # without dropout
        try:
            with (
                torch.no_grad(),
                disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
            ):
                logps, _ = self._get_per_token_logps_and_entropies(self.model, inputs, batch)
        finally:
            self.model.train()
        return logps, batch.completion_mask

    def _rollout_facts(self: Any, samples: list[Any]) -> Any:
        scores = self._rewards_per_func.tolist()
        advantages = list(self._logs["advantages"])[-len(scores) :]
        figures = {name: values[-1] for name, values in self._metrics["train"].items() if values}
        dull = advantaged_share(advantages, figures) == 0
        return rollout_facts(
            names=self.reward_func_names,
            scores=scores,
            completions=list(self._logs["completion"])[-len(scores) :],
            advantages=advantages,
            figures=figures,
            group_size=0 if self.dynamic_num_samples else self.num_generations,
            example=described(samples[0], self.train_dataset) if dull and samples else "",
        )

    def _get_per_token_logps_and_entropies(
        self: Any, model: Any, model_inputs: Any, grpo_batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        result = super()._get_per_token_logps_and_entropies(  # type: ignore[misc]
            model, model_inputs, grpo_batch, *args, **kwargs
        )
        if self.watch and self.model.training and torch.is_grad_enabled():
            mask = grpo_batch.completion_mask
            cut = getattr(grpo_batch, "truncated_mask", None)
            if self.overlong_filter and cut is not None:  # as the host does after this pass
                mask = mask & ~cut.unsqueeze(-1)
            tally = self.watch.tally
            tally.surprise = tally.surprise - (result[0].detach() * mask).sum()
            tally.tokens = tally.tokens + mask.sum()
        return result

    def _maybe_log_save_evaluate(
        self: Any, tr_loss: Any, grad_norm: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        # Comes after every optimizer step, and once more after an epoch's last one.
        if self.watch and self.state.global_step > self._judged_step:
            self._judged_step = self.state.global_step
            self._end_watched_step(grad_norm)
        with self._phase("log"):
            super()._maybe_log_save_evaluate(tr_loss, grad_norm, *args, **kwargs)  # type: ignore[misc]

    def _end_watched_step(self: Any, grad_norm: Any) -> None:
        self.watch.phases.rest_in("between")
        norm = float(grad_norm) if grad_norm is not None else None
        dropped = norm is not None and math.isnan(norm)  # the host's _fix_grad_norm_nan
        skipped = dropped or bool(self.accelerator.optimizer_step_was_skipped)
        if self.watch.end_step(self.state.global_step, norm, skipped):
            self.control.should_training_stop = True
            self.control.should_save = True
