"""What we read of ms-swift's GRPO trainer: its attributes and methods, in one place."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch import Tensor, nn
from transformers import PreTrainedModel

from swift_grpo_ext.models.derived import speaking_model
from swift_grpo_ext.watch.watched import Watched


class Host(Watched, Protocol):
    """ms-swift's GRPO trainer as our collaborators see it, with what the monitors read of it.

    tests/test_host_names.py holds every name against the installed ms-swift, on both ends of the range.
    """

    # The run.
    control: Any
    template: Any
    train_dataset: Any
    eval_dataset: Any

    # The models.
    ref_model: nn.Module | None
    is_multimodal: bool

    # Rollouts.
    num_generations_eval: int
    dynamic_num_samples: bool
    dynamic_resample_iterator: Iterator[Any]
    max_resample_times: int
    engine: Any
    vllm_client: Any
    vllm_mode: str
    vllm_tensor_parallel_size: int
    vllm_use_async_engine: bool
    tp_group: Any

    # Rewards.
    reward_funcs: list[Any]
    reward_func_names: list[str]
    reward_model_plugins: list[Any]
    reward_weights: Tensor
    _rewards_per_func: Tensor

    # Advantages and the loss.
    advantage_estimator: Literal["grpo", "rloo", "reinforce_plus_plus"]
    advantage_reweight: str
    scale_rewards: Literal["group", "batch", "none", "gdpo"]
    kl_in_reward: bool
    loss_type: str
    num_iterations: int
    overlong_filter: bool
    temperature: float
    use_liger_loss: bool
    liger_grpo_loss: Any
    _forward_redirection: Any
    sdar_loss_coef: float
    compute_entropy: bool
    rollout_importance_sampling_mode: str | None
    disable_rollout_importance_sampling: bool
    log_rollout_offpolicy_metrics: bool
    off_policy_sequence_mask_delta: float | None
    current_gradient_accumulation_steps: int
    _has_teacher: bool

    # The step at hand, and the log.
    _step: int
    _buffered_inputs: Any
    _logs: dict[str, Any]
    log_completions: bool

    def pop_callback(self, callback: type) -> Any:
        """Take a callback out of the run; None if there is none of that type."""

    def add_callback(self, callback: object) -> None:
        """Put a callback behind the others."""

    def old_policy(self) -> bool:
        """A generation batch serves more than one update."""

    def compute_std(self, samples: object, rewards_per_func: Tensor) -> Tensor:
        """Deviation of rewards within the group of each completion of all ranks."""

    def split_by_mini_batches(self, samples: Sequence[object]) -> list[list[Any]]:
        """Samples of each micro-batch."""

    def _prepare_inputs(self, inputs: object) -> object: ...

    def compute_loss(self, model: object, inputs: object, *args: object, **kwargs: object) -> object:
        """The loss of a micro-batch."""

    def get_chunked_inputs(self, *args: object, **kwargs: object) -> tuple[object, Any]:
        """Inputs and micro-batch of some rows of a micro-batch."""

    def _get_last_hidden_state(self, model: object, model_inputs: object, keep: object) -> Tensor: ...
    def _rollout_samples(self, inputs: object) -> list[object]: ...
    def _compute_rewards_per_func(self, samples: object) -> Tensor: ...
    def _get_per_token_logps_and_entropies(
        self, model: object, model_inputs: object, grpo_batch: object, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor | None]: ...
    def _template_context(self, template: object) -> AbstractContextManager[None]: ...
    def _gather_and_flatten(self, local_list: object, *, flatten_level: int) -> Any: ...
    def _has_teacher_explicit(self) -> bool: ...


@dataclass
class Early:
    """What decides whether prompts are shared, of a trainer that is not built yet."""

    model: Any  # the model, not yet wrapped
    template: Any
    args: Any
    is_multimodal: bool  # it takes images


def base_model(host: Host, model: nn.Module) -> PreTrainedModel:
    """The ``*ForConditionalGeneration`` module inside DDP, DeepSpeed and PEFT."""
    return speaking_model(host.template.get_base_model(host.accelerator.unwrap_model(model)))
