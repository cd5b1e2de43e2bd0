"""Parts of ms-swift's Megatron GRPO trainer that we read, and a check that what we change is there."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from swift.utils import get_logger, is_last_rank
from torch import Tensor, nn

from swift_grpo_ext.trainer.samples import VisionSample

if TYPE_CHECKING:
    from swift_grpo_ext.megatron.predictions import OutputLayers


@dataclass(frozen=True)
class Ranks:
    """This rank among all, by the names that accelerate has for it."""

    device: Any
    process_index: int
    num_processes: int
    is_main_process: bool  # it speaks: with Megatron the last, which has the loss


class MegatronHost(Protocol):
    """ms-swift's Megatron GRPO trainer as our collaborators see it."""

    # The run.
    args: Any
    template: Any
    state: Any
    device: Any
    process_index: int
    world_size: int
    is_main_process: bool

    # The models.
    config: Any
    optimizer: Any
    accelerator: Ranks
    model: nn.Module  # the first of them
    unwrapped_models: list[nn.Module]
    ref_models: list[nn.Module]
    output_layers: "OutputLayers"

    # The loss.
    beta: float
    loss_type: str
    num_generations: int
    num_generations_eval: int
    reward_func_names: list[str]
    kl_in_reward: bool
    temperature: float
    steps_per_generation: int
    max_resample_times: int
    overlong_filter: bool
    global_batch_size: int
    micro_batch_size: int
    enable_routing_replay: bool
    _has_teacher_explicit: bool
    _metrics: dict[str, Any]
    _logs: dict[str, Any]

    def _get_rollout_group(self) -> Any:
        """Ranks that work on the same completions."""

    def _score_completions(self, samples: list[VisionSample]) -> Tensor:
        """Rewards ``(n, functions)`` of this rank's completions."""


def rows_of_evaluation_batch(host: MegatronHost) -> int:
    """Validation rows that all ranks answer at a time."""
    return int(host.args.global_batch_size // host.num_generations_eval)


def log_from_last_rank() -> None:
    """Let the last rank alone say what this package has to say: with Megatron it has the loss.

    ms-swift's logger is silent on all but the first rank of a machine. What is ms-swift's own stays as it is.
    """
    logger = get_logger()
    speaks = is_last_rank()
    level = logger.level
    logger.setLevel(min(level, logging.INFO))

    def is_said(record: logging.LogRecord) -> bool:
        if record.getMessage().startswith("swift-grpo-ext"):
            return speaks or record.levelno >= logging.ERROR
        return record.levelno >= level

    logger.addFilter(is_said)


Logps = tuple[Tensor | None, object]  # log-probs, None on other stages than the last; and routed experts
