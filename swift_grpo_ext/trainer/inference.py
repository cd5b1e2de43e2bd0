"""Keeps the mode of a model while transformers samples from it."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def mode_kept(model: nn.Module) -> Iterator[None]:
    """Restore the model's mode on exit; transformers' engine leaves it in eval mode.

    ms-swift and we tell an evaluation by the mode, so a rollout's second turn would be taken for one.
    """
    training = model.training
    try:
        yield
    finally:
        model.train(training)
