"""Sampling by transformers leaves the mode of a model as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def mode_kept(model: nn.Module) -> Iterator[None]:
    """A model is afterwards in the mode that it was in; transformers' engine leaves it in evaluation.

    By the mode ms-swift and we know an evaluation, so the second turn of a rollout would be taken for one.
    """
    training = model.training
    try:
        yield
    finally:
        model.train(training)
