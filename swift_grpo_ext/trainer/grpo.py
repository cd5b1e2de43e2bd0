"""The trainer that the host builds for ``--rlhf_type grpo``."""

from __future__ import annotations

from swift.rlhf_trainers import GRPOTrainer as HostGRPOTrainer

from swift_grpo_ext.trainer.baselines import GroupBaselines
from swift_grpo_ext.trainer.empty_completions import NoEmptyCompletions
from swift_grpo_ext.trainer.failure import FailFast
from swift_grpo_ext.trainer.forward import GroupForward
from swift_grpo_ext.trainer.logged import TokenWeightedMetrics
from swift_grpo_ext.trainer.logged_images import LoggedImages
from swift_grpo_ext.trainer.own_ratio import OwnRatio
from swift_grpo_ext.trainer.placeholders import NoPlaceholders
from swift_grpo_ext.trainer.real_groups import RealGroups
from swift_grpo_ext.trainer.resampling import Resampling
from swift_grpo_ext.trainer.resuming import Resuming
from swift_grpo_ext.trainer.rewarding import RewardRuntime
from swift_grpo_ext.trainer.rows import CheckedRows
from swift_grpo_ext.trainer.startup import Startup
from swift_grpo_ext.trainer.teacher import NoPhantomTeacher
from swift_grpo_ext.trainer.tensor_parallel import AgreedRollouts
from swift_grpo_ext.trainer.tracing import Tracing
from swift_grpo_ext.trainer.watching import Watching
from swift_grpo_ext.trainer.window_loss import WindowLoss


class GRPOTrainer(
    # The run: whatever fails below, in construction too, is told to every rank.
    FailFast,
    Startup,
    # The model's passes: one that is left out must reach none of those that look at passes.
    GroupForward,
    Tracing,
    Watching,
    Resuming,
    # Rows and rollouts: a broken row is out before anything is done with it.
    AgreedRollouts,
    CheckedRows,
    NoPlaceholders,
    NoEmptyCompletions,
    # Rewards and the loss: the runtime yields a score or None, the baselines read them, the log comes last.
    RewardRuntime,
    GroupBaselines,
    Resampling,
    TokenWeightedMetrics,
    LoggedImages,
    NoPhantomTeacher,
    WindowLoss,
    RealGroups,
    OwnRatio,
    HostGRPOTrainer,
):
    """The host's GRPO trainer with our mixins, each about one thing; the first is the outermost."""
