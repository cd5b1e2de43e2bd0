"""The trainer that the host builds for ``--rlhf_type grpo``."""

from __future__ import annotations

from swift.rlhf_trainers import GRPOTrainer as HostGRPOTrainer

from swift_grpo_ext.trainer.baselines import GroupBaselines
from swift_grpo_ext.trainer.failure import EndTogether
from swift_grpo_ext.trainer.logged import HonestLog
from swift_grpo_ext.trainer.logged_images import LoggedImages
from swift_grpo_ext.trainer.rewarding import RewardRuntime
from swift_grpo_ext.trainer.startup import Startup
from swift_grpo_ext.trainer.tensor_parallel import AgreedRollouts
from swift_grpo_ext.trainer.tracing import Tracing
from swift_grpo_ext.trainer.watching import Watching


class GRPOTrainer(
    EndTogether,
    Startup,
    Tracing,
    Watching,
    AgreedRollouts,
    RewardRuntime,
    GroupBaselines,
    HonestLog,
    LoggedImages,
    HostGRPOTrainer,
):
    """The host's GRPO trainer with our mixins, each about one thing."""
