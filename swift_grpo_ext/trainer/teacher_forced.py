"""A few completions under the trainer's model: the logits of chosen tokens, by teacher forcing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING

import torch
from swift.rlhf_trainers.utils import collate_to_grpo_micro_batch, encode_sample
from swift.trainers import disable_gradient_checkpointing
from torch import Tensor, nn

from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import VisionSample

if TYPE_CHECKING:
    from swift.rl_core.data import GRPOBatch

Places = Sequence[Sequence[int]]


class TeacherForced:
    """Completions as they are trained on.

    Attributes:
        rows: Token ids of each, prompt and completion.
        tokens: Ids of those that have a loss.
        grids: (frames, rows, columns) of patches of each image; empty if the model takes none.
    """

    def __init__(self, host: Host, samples: Sequence[VisionSample]) -> None:
        self._host = host
        template = copy(host.template)
        template.padding_free = False  # rows are told apart by their place
        self._inputs, batch = collated(host, samples, template)
        self._inputs.pop("logits_to_keep", None)
        ids, present = self._inputs["input_ids"], self._inputs["attention_mask"].bool()
        grids = self._inputs.get("image_grid_thw")
        self.grids: list[list[int]] = [] if grids is None else grids.tolist()
        self._mask = batch.completion_mask.bool()
        self._keep = self._mask.shape[1]
        self.rows = [row[there].tolist() for row, there in zip(ids, present, strict=True)]
        last = ids[:, -self._keep :]
        self.tokens = [row[has].tolist() for row, has in zip(last, self._mask, strict=True)]

    def targets(self, places: Places) -> Tensor:
        """``(N,)`` ids of the tokens at the places."""
        ids = [self.tokens[row][place] for row, chosen in enumerate(places) for place in chosen]
        return torch.tensor(ids, device=self._mask.device)

    def logits(self, model: nn.Module, places: Places) -> Tensor:
        """``(N, vocab)`` logits that predict the tokens at the places. All ranks call it together."""
        host = self._host
        base = host.template.get_base_model(host.accelerator.unwrap_model(model))
        head = base.get_output_embeddings()
        slot = torch.cat(
            [
                row * self._keep + self._mask[row].nonzero()[:, 0][torch.tensor(chosen, dtype=torch.long)]
                for row, chosen in enumerate(places)
            ]
        )
        with looking(host, model), swapped(head, "forward", _of(head.forward, self._keep, slot)):
            found: Tensor = model(**self._inputs).logits
        return found.flatten(0, -2)


def collated(
    host: Host, samples: Sequence[VisionSample], template: object
) -> tuple[dict[str, Tensor], GRPOBatch]:
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
def looking(host: Host, model: nn.Module) -> Iterator[None]:
    """While this is open, a model only answers: no gradients, no dropout."""
    training = model.training
    model.eval()
    try:
        with (
            torch.no_grad(),
            disable_gradient_checkpointing(model, host.args.gradient_checkpointing_kwargs),
        ):
            yield
    finally:
        model.train(training)


def _of(logits_of: Callable[[Tensor], Tensor], keep: int, slot: Tensor) -> Callable[[Tensor], Tensor]:
    def forward(hidden: Tensor) -> Tensor:
        return logits_of(hidden[:, -keep - 1 : -1].flatten(0, 1)[slot])

    return forward
