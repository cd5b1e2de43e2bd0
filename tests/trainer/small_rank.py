"""A plugin whose rank 1 has room for two completions of a pack: a stand-in, for there is no GPU."""

import os

import torch

from swift_grpo_ext.group.attention import BACKENDS

sdpa = BACKENDS["sdpa"]


class Raising(torch.autograd.Function):
    """A backward pass that does not fit."""

    @staticmethod
    def forward(ctx, states):
        return states.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise torch.OutOfMemoryError("CUDA out of memory")


def for_two(*args):
    found, layout = sdpa(*args), args[3]
    small = os.environ.get("RANK") == "1" and sum(node.parent >= 0 for node in layout.nodes) > 2
    return Raising.apply(found) if small and torch.is_grad_enabled() else found


BACKENDS["sdpa"] = for_two
