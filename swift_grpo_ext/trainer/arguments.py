"""The training arguments that the host builds for ``--rlhf_type grpo``, before it loads a model."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from swift_grpo_ext.compat.refusals import RefusableRun, refuse, world_size
from swift_grpo_ext.compat.registry import healed
from swift_grpo_ext.defects import DDP_TIMEOUT, HOST_DDP_TIMEOUT
from swift_grpo_ext.ms_swift.arguments import GRPOConfig as HostGRPOConfig
from swift_grpo_ext.rewards.registration import require_known
from swift_grpo_ext.rewards.runtime.rules import SETTING, load_table
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.trainer.scoring import names_of


@dataclass
class GRPOConfig(HostGRPOConfig):
    """ms-swift's arguments, checked for what must not run; ranks wait half an hour, not 208 days."""

    if TYPE_CHECKING:  # fields of ms-swift's
        ddp_timeout: int
        num_generations_eval: int | None
        per_device_train_batch_size: int
        gradient_accumulation_steps: int
        steps_per_generation: int | None
        generation_batch_size: int | None

    # ms-swift hands over every argument of which there is a field: a mistyped name is found before the model.
    reward_funcs: list[str] = field(default_factory=list)
    ref_adapters: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        table = load_table(current_settings().reward_table)
        require_known(sorted({*table.rewards}.difference(names_of(list(self.reward_funcs)))), SETTING)
        deepspeed = self.deepspeed if isinstance(self.deepspeed, dict) else {}
        refuse(RefusableRun(vars(self), deepspeed.get("zero_optimization") or {}, world_size(), healed()))
        if self.ddp_timeout == HOST_DDP_TIMEOUT:
            self.ddp_timeout = DDP_TIMEOUT
        # Held-out answers are greedy, so one per row is enough; REAL's loss is defined for groups only.
        greedy = self.loss_type != "real" and not current_settings().disables("trainer.held_out")
        if self.num_generations_eval is None and greedy:
            self.num_generations_eval = 1
        super().__post_init__()
