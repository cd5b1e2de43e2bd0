"""The training arguments that the host builds for ``--rlhf_type grpo``, before it loads a model."""

from __future__ import annotations

from swift.rlhf_trainers.arguments import GRPOConfig as HostGRPOConfig
from swift.utils import get_logger

from swift_grpo_ext.compat.refusals import Run, refuse, world_size
from swift_grpo_ext.compat.registry import healed
from swift_grpo_ext.settings import current_settings

HOST_DDP_TIMEOUT = 18_000_000  # seconds: 208 days


class GRPOConfig(HostGRPOConfig):
    """The host's arguments, checked for combinations that must not run.

    Ranks wait for each other half an hour (``SWIFT_GRPO_EXT_DDP_TIMEOUT``) in the place of the host's 208
    days, unless ``--ddp_timeout`` says otherwise.
    """

    ddp_timeout: int

    def __post_init__(self) -> None:
        refuse(
            Run(
                arguments=dict(vars(self)),
                deepspeed=self.deepspeed if isinstance(self.deepspeed, dict) else {},
                world_size=world_size(),
                healed=healed(),
            )
        )
        if self.ddp_timeout == HOST_DDP_TIMEOUT:
            self.ddp_timeout = current_settings().ddp_timeout
            get_logger().info(f"swift-grpo-ext: ranks wait for each other at most {self.ddp_timeout} s.")
        super().__post_init__()
