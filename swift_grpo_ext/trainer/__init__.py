"""The GRPO trainer: ms-swift's, with each method that is changed overridden once (`grpo.py`)."""


def register() -> list[str]:
    """Make the host build our trainer and its arguments for ``--rlhf_type grpo``, imported when built."""
    from swift_grpo_ext.ms_swift.factory import TrainerFactory

    TrainerFactory.TRAINER_MAPPING["grpo"] = "swift_grpo_ext.trainer.grpo.GRPOTrainer"
    TrainerFactory.TRAINING_ARGS_MAPPING["grpo"] = "swift_grpo_ext.trainer.arguments.GRPOConfig"
    return ["grpo"]
