"""Plugin for runs through the command: the trainer that SWEEP_KIND names, rewards and completions of the sweep."""

import os

from pairs.scripted import allow_segments
from sweep.fsdp_on_cpu import allow_fsdp
from sweep.runner import ARGUMENTS, REWARDS
from swift.rewards import orms
from swift.trainers.trainer_factory import TrainerFactory

kind = os.environ["SWEEP_KIND"]
if os.environ["MODE"] == "fsdp2":
    allow_fsdp()
allow_segments()
orms.update(REWARDS)
TrainerFactory.TRAINER_MAPPING["grpo"] = f"sweep.trainers.{kind}"
TrainerFactory.TRAINING_ARGS_MAPPING["grpo"] = ARGUMENTS[kind]
