"""Attributes and methods of ms-swift's GRPO trainer that we read, in one place."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol

from accelerate.utils import is_deepspeed_available
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DataParallel, DistributedDataParallel
from transformers import PreTrainedModel, TrainerCallback

from swift_grpo_ext.models.derived import speaking_model
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.ms_swift.hf import SwiftModel
from swift_grpo_ext.ms_swift.shared import GRPOBatch, get_logger
from swift_grpo_ext.once import Once
from swift_grpo_ext.trainer.samples import Batch, Batches, Inputs, Rewards, Row, Samples, Scores, VisionSample
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

    passes: Any  # our `Passes`, which know this class
    rollout: Any  # our `Rollout`, which knows it, too
    held_out: Any  # our `TrainerHeldOut`

    # The models.
    ref_model: nn.Module | None
    ref_adapter_name: str | None
    is_multimodal: bool
    is_deepspeed_enabled: bool
    is_fsdp_enabled: bool

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
    multi_turn_scheduler: Any
    enable_server_multi_turn: bool
    tp_group: Any

    # Rewards.
    reward_funcs: list[Any]
    reward_func_names: list[str]
    reward_model_plugins: list[Any]
    reward_weights: Float[Tensor, " functions"]
    _rewards_per_func: Rewards

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
    chord_sft_iterator: Iterator[Any] | None  # of supervised batches, which CHORD mixes in
    compute_entropy: bool
    rollout_importance_sampling_mode: str | None
    log_rollout_offpolicy_metrics: bool
    off_policy_sequence_mask_delta: float | None
    current_gradient_accumulation_steps: int
    _has_teacher: bool

    # The current step, and the log.
    _step: int
    _logs: dict[str, Any]
    log_completions: bool

    def pop_callback(self, callback: type) -> Any:
        """Take a callback out of the run; None if the run has none of that type."""

    def add_callback(self, callback: TrainerCallback) -> None:
        """Put a callback behind the others."""

    def old_policy(self) -> bool:
        """A generation batch serves more than one update."""

    def compute_std(self, samples: Samples, rewards_per_func: Rewards) -> Float[Tensor, " completions"]:
        """Deviation of rewards within the group of each completion of all ranks."""

    def split_by_mini_batches(self, samples: Sequence[VisionSample]) -> list[Samples]:
        """Samples of each micro-batch."""

    def _prepare_inputs(self, inputs: list[Row]) -> Batch: ...

    def compute_loss(
        self, model: nn.Module, inputs: Batch | Batches, *args: Any, **kwargs: Any
    ) -> Float[Tensor, ""]:
        """The loss of a micro-batch."""

    def get_chunked_inputs(self, *args: Any, **kwargs: Any) -> tuple[Inputs, GRPOBatch]:
        """Inputs and micro-batch of some rows of a micro-batch."""

    def _get_last_hidden_state(
        self, model: nn.Module, model_inputs: Inputs, keep: int
    ) -> Float[Tensor, "batch keep hidden"]: ...
    def _rollout_samples(self, inputs: list[Row]) -> Samples: ...
    def _compute_rewards_per_func(self, samples: Samples) -> Rewards: ...
    def _get_per_token_logps_and_entropies(
        self, model: nn.Module, model_inputs: Inputs, grpo_batch: GRPOBatch, *args: Any, **kwargs: Any
    ) -> Scores: ...
    def _gather_and_flatten(self, local_list: list[Any], *, flatten_level: int) -> Any: ...
    def _has_teacher_explicit(self) -> bool: ...


@dataclass
class Early:
    """Facts that decide whether prompts are shared, of a trainer that is not built yet."""

    model: Any  # the model, not yet wrapped
    template: Any
    args: Any
    is_multimodal: bool  # it takes images


def metrics_of(host: Host) -> defaultdict[str, list[float]]:
    """The figures of the micro-batches of training, or of an evaluation, that go into the next log."""
    return host._metrics["train" if host.model.training else "eval"]


def base_model(host: Host, model: nn.Module) -> PreTrainedModel:
    """The ``*ForConditionalGeneration`` module inside DDP, DeepSpeed, PEFT and ms-swift's tuners."""
    inner = unwrapped(model)
    inner = inner.base_model if isinstance(inner, SwiftModel) else host.template.get_base_model(inner)
    return speaking_model(inner)


def tower_modules(host: Host, model: nn.Module) -> list[nn.Module]:
    """The vision tower of a policy or reference; empty for a model of an unknown family."""
    base = base_model(host, model)
    family = family_of(base.config)
    return [base.get_submodule(name) for name in (family.vision_tower if family else ())]


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside DDP, FSDP and DeepSpeed.

    accelerate's ``unwrap_model`` gives the same, and each time reads the metadata of the installed DeepSpeed
    and looks through all modules for compiled ones: milliseconds, a dozen times a step.
    """
    while isinstance(model, _wrappers()):
        model = model.module
    return model


@cache
def _wrappers() -> tuple[type[Any], ...]:
    wrappers = (DistributedDataParallel, DataParallel, FullyShardedDataParallel)
    if not is_deepspeed_available():
        return wrappers
    from deepspeed import DeepSpeedEngine  # imports what this process may lack

    return (*wrappers, DeepSpeedEngine)


def once_of_run(host: Host, topic: str = "") -> Once:
    """Logs each message once, on the first rank."""

    def log(message: str) -> None:
        if host.accelerator.is_main_process:
            get_logger().info(f"swift-grpo-ext: {topic}{message}")

    return Once(log)
