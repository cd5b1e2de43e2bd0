"""A plugin that makes the host start dataloader workers as its earlier releases did: WORKER_START says how."""

import os

import torch
from swift.trainers import mixin
from transformers import set_seed


def without_facts(function, **facts):
    """As ms-swift up to 3.4.1 and trl 0.17: the function itself, which needs more from transformers 4.52 on."""
    return function


def old_seed_worker(_):
    """As transformers up to 4.51.3, which trl 0.19 gives more than it takes."""
    set_seed(torch.initial_seed() % 2**32)


if os.environ["WORKER_START"] == "bare":
    mixin.partial = without_facts
else:
    mixin.seed_worker = old_seed_worker
