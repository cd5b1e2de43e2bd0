"""A plugin that makes the host start dataloader workers as its earlier releases did: WORKER_START says how."""

import os

import swift.rlhf_trainers.grpo_trainer  # noqa: F401  its import puts a function of its own into trl
import torch
from swift.rlhf_trainers import rlhf_mixin
from transformers import set_seed
from trl.trainer import grpo_trainer


class WithoutFacts:
    """As ms-swift up to 3.4.1 and trl 0.17: the function itself, which needs more from transformers 4.52 on."""

    def __new__(cls, function, **facts):
        return function


def old_seed_worker(_):
    """As transformers up to 4.51.3, which trl 0.19 gives more than it takes."""
    set_seed(torch.initial_seed() % 2**32)


if os.environ["WORKER_START"] == "bare":
    grpo_trainer.partial = rlhf_mixin.partial = WithoutFacts
else:
    grpo_trainer.seed_worker = old_seed_worker
