"""The GRPO trainer: a thin subclass of the host's that wires `swift_grpo_ext.group` in."""


def register() -> list[str]:
    """Make the host build our trainer and its arguments for ``--rlhf_type grpo``, imported when built."""
    from swift.trainers.trainer_factory import TrainerFactory
    from wrapt import register_post_import_hook

    from swift_grpo_ext.trainer.encode_clock import ENGINE, time_servers

    TrainerFactory.TRAINER_MAPPING["grpo"] = "swift_grpo_ext.trainer.grpo.GRPOTrainer"
    TrainerFactory.TRAINING_ARGS_MAPPING["grpo"] = "swift_grpo_ext.trainer.arguments.GRPOConfig"
    register_post_import_hook(time_servers, ENGINE)
    return ["grpo"]
