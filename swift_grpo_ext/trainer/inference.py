"""Completions that are computed beside the training, without gradients: for monitors and the engine check."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy

import torch
from torch import nn

from swift_grpo_ext.ms_swift.shared import (
    GRPOBatch,
    Template,
    collate_to_grpo_micro_batch,
    disable_gradient_checkpointing,
    encode_sample,
)
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import Inputs, VisionSample


def collated(host: Host, samples: Sequence[VisionSample], template: Template) -> tuple[Inputs, GRPOBatch]:
    """Inputs of the model and ms-swift's micro-batch of completions; the samples stay as they are."""
    samples = [copy(sample) for sample in samples]
    with host._template_context(host.template):
        for sample in samples:
            sample.encoded = encode_sample(sample, template)
            sample.encoded.pop("_extra_kwargs", None)
        inputs, batch = collate_to_grpo_micro_batch(
            samples, template, device=host.accelerator.device, use_logits_to_keep=True
        )
    inputs.pop("labels", None)
    return inputs, batch


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


@contextmanager
def looking(host: Host, model: nn.Module) -> Iterator[None]:
    """While this is open, a model only answers: no gradients, no dropout."""
    settings = host.args.gradient_checkpointing_kwargs
    with mode_kept(model), torch.no_grad(), disable_gradient_checkpointing(model, settings):
        model.eval()
        yield
