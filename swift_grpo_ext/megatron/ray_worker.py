"""A worker of ms-swift's Ray trainer on Megatron. Ray imports this before plugin files: it imports little."""

from typing import Any

from swift.ray.megatron import megatron_worker
from swift.ray.megatron.megatron_worker import MegatronWorker, _make_lifecycle_trainer  # noqa: F401

from swift_grpo_ext.swap import swapped

# What a pass is for, by the name of its log-probs.
_PHASES = {
    "per_token_logps": "old",
    "ref_per_token_logps": "reference",
    "teacher_per_token_logps": "teacher",
}


class Worker(MegatronWorker):
    """ms-swift's worker with each method that we change, once. Training other than GRPO is unchanged."""

    def _init_trainable(self) -> None:
        if self._args.rlhf_type != "grpo":
            super()._init_trainable()
            return
        from swift_grpo_ext.megatron.ray_trainer import WorkerTrainer

        with swapped(megatron_worker, "_make_lifecycle_trainer", WorkerTrainer):
            super()._init_trainable()

    def get_padding_to(self) -> Any:
        """Number whose multiple the driver pads a micro-batch's length to; None: passes see to it."""
        if self._args.rlhf_type == "grpo" and self._megatron.passes.pads:
            return None
        return super().get_padding_to()

    def join_driver(self, needs_old: bool) -> Any:
        """Completions of a micro-batch; ``needs_old``: the driver reads old log-probs."""
        return self._megatron.join_driver(needs_old)

    def _compute_logps(self, model_inputs: dict[str, Any], model: Any, output_key: str) -> dict[str, Any]:
        with self._megatron.passing(model_inputs, _PHASES[output_key]):
            return super()._compute_logps(model_inputs, model, output_key)

    @staticmethod
    def _extract_step_metrics(megatron: Any) -> dict[str, Any]:
        metrics: dict[str, Any] = MegatronWorker._extract_step_metrics(megatron)
        # A run that a monitor ends has other iterations than the driver counts to.
        if megatron.state.iteration >= megatron.args.train_iters:
            metrics["iteration"] = megatron.state.max_steps
        return metrics
