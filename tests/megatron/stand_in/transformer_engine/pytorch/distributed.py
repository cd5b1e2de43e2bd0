"""Stands in for recomputation and random states.

Kept: a recomputed forward runs again in the backward pass, with the same random state. Left out: activations distributed over
tensor-parallel ranks.
"""

from contextlib import contextmanager

import torch
from torch.utils.checkpoint import checkpoint as torch_checkpoint


class CudaRNGStatesTracker:
    """Named random states, with the interface of Megatron's tracker, over the CPU's generator."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.states_ = {}
        self.seeds_ = set()

    def get_states(self):
        return dict(self.states_)

    def set_states(self, states):
        self.states_ = states

    def add(self, name, seed):
        before = torch.get_rng_state()
        torch.manual_seed(seed)
        self.states_[name] = torch.get_rng_state()
        torch.set_rng_state(before)

    @contextmanager
    def fork(self, name="model-parallel-rng"):
        before = torch.get_rng_state()
        torch.set_rng_state(self.states_[name])
        try:
            yield
        finally:
            self.states_[name] = torch.get_rng_state()
            torch.set_rng_state(before)


def checkpoint(
    function,
    *args,
    distribute_saved_activations=False,
    get_rng_state_tracker=None,
    tp_group=None,
    use_reentrant=True,
    **kwargs,
):
    return torch_checkpoint(function, *args, use_reentrant=False, **kwargs)


@contextmanager
def activation_recompute_forward(activation_recompute=False, recompute_phase=False):
    yield


def is_fp8_activation_recompute_enabled():
    return False
