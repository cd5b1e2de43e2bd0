"""The training arguments that the host builds for ``--rlhf_type grpo``, before it loads a model."""

import torch
from swift.rlhf_trainers.arguments import GRPOConfig as HostGRPOConfig
from swift.utils import get_logger

from swift_grpo_ext.compat.refusals import Run, refuse, world_size
from swift_grpo_ext.compat.registry import healed
from swift_grpo_ext.defects import HOST_DDP_TIMEOUT
from swift_grpo_ext.group.batch_sizes import BatchSizes, grouped
from swift_grpo_ext.settings import current_settings


class GRPOConfig(HostGRPOConfig):
    """ms-swift's arguments, checked for what must not run; ranks wait half an hour, not 208 days."""

    ddp_timeout: int
    num_generations_eval: int | None
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    steps_per_generation: int | None
    generation_batch_size: int | None

    def __post_init__(self) -> None:
        group_batch = current_settings().group_batch
        self._refuse(**({"per_device_train_batch_size": None} if group_batch else {}))  # yet to be chosen
        if self.ddp_timeout == HOST_DDP_TIMEOUT:
            self.ddp_timeout = current_settings().ddp_timeout
            get_logger().info(f"swift-grpo-ext: ranks wait for each other at most {self.ddp_timeout} s.")
        if group_batch:
            self._make_micro_batches_of_groups()
            self._refuse()
        # Answers to held-out rows are greedy, so one says all; REAL's loss is defined for groups alone.
        greedy = self.loss_type != "real" and not current_settings().disables("trainer.held_out")
        if self.num_generations_eval is None and greedy:
            self.num_generations_eval = 1
        super().__post_init__()

    def _refuse(self, **other: object) -> None:
        deepspeed = self.deepspeed if isinstance(self.deepspeed, dict) else {}
        given = {**vars(self), "use_cpu": self.use_cpu or not torch.accelerator.is_available(), **other}
        refuse(Run(given, deepspeed, world_size(), healed()))

    def _make_micro_batches_of_groups(self) -> None:
        """Change the sizes of micro-batches before DeepSpeed and the data loader read them."""
        batch, accumulation = self.per_device_train_batch_size, self.gradient_accumulation_steps
        per_generation = self.steps_per_generation or accumulation
        if self.generation_batch_size:
            per_generation = self.generation_batch_size // (batch * world_size())
        before, most = BatchSizes(batch, accumulation, per_generation), current_settings().group_batch_tokens
        sizes = grouped(before, self.num_generations, self.max_completion_length, most)
        self.per_device_train_batch_size, self.gradient_accumulation_steps = sizes.batch, sizes.accumulation
        self.steps_per_generation, self.generation_batch_size = sizes.per_generation, None
        note = " (bnpo and top_entropy_quantile are defined per micro-batch)"
        depends = self.loss_type == "bnpo" or self.top_entropy_quantile < 1.0
        get_logger().info(
            f"swift-grpo-ext: micro-batches of {batch} x {accumulation} are now {sizes.batch} x "
            f"{sizes.accumulation}, the same completions per step{note if depends else ''}."
        )
