"""The GRPO trainer: a thin subclass of the host's that wires `swift_grpo_ext.group` in."""

from __future__ import annotations


def register() -> list[str]:
    """Make the host build our trainer for ``--rlhf_type grpo``. The class is imported when it is built."""
    from swift.trainers.trainer_factory import TrainerFactory

    TrainerFactory.TRAINER_MAPPING["grpo"] = "swift_grpo_ext.trainer.grpo.GRPOTrainer"
    return ["grpo"]
