"""Which of a micro-batch's hidden states predict a token of a completion, and where the log-probs go."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region
from torch import Tensor, nn

from swift_grpo_ext.group.micro_batch import MicroBatch
from swift_grpo_ext.swap import swapped

IGNORED = -100  # label of a token without a loss
Compute = Callable[..., tuple[Tensor, Tensor | None]]


@dataclass(frozen=True)
class Predictions:
    """The completion tokens of a micro-batch: N of them, and one (ignored) where the batch has none."""

    places: Tensor  # ``(N,)`` of the hidden state that predicts each, in the model's tokens end to end
    targets: Tensor  # ``(1, N)`` ids
    slots: Tensor  # ``(losses,)`` place of each log-prob in ms-swift's tensor, end to end
    score: Tensor  # ``(losses,)`` which of the N it is: rows that share a token share its log-prob
    shape: torch.Size  # of that tensor

    def spread(self, values: Tensor) -> Tensor:
        """Put ``(1, N)`` values where ms-swift has them, 0 elsewhere."""
        of_losses = values[0].index_select(0, self.score)
        placed = values.new_zeros(self.shape.numel()).index_copy(0, self.slots, of_losses)
        return placed.view(self.shape)

    def computed(self, stock: Compute, logits: Tensor, labels: Tensor, *args: Any, **kwargs: Any) -> Any:
        """ms-swift's log-probs and entropies of logits of these tokens alone, in the shape of all."""
        logps, entropies = stock(logits, self.targets, *args, **kwargs)
        return self.spread(logps), None if entropies is None else self.spread(entropies)


def predictions_of_rows(labels: Tensor) -> Predictions:
    """Predictions of the rows as they are; ``labels`` are ``(batch, seq)``, each at its own token."""
    ahead = labels.roll(-1, -1).flatten()
    places = (ahead != IGNORED).nonzero()[:, 0]
    if not len(places):
        places = places.new_zeros(1)
    return Predictions(
        places, ahead[places][None], places, torch.arange(len(places), device=places.device), labels.shape
    )


def predictions_of_pack(batch: MicroBatch, labels: Tensor) -> Predictions:
    """Predictions of a micro-batch's pack; ``labels`` are ``(batch, seq)``, or ``(1, total)`` end to end."""
    assert batch.pack is not None
    present = batch.inputs["attention_mask"]
    if present.shape == labels.shape:
        place = torch.arange(labels.numel(), device=labels.device)
    else:  # without padding rows lie end to end
        place = present.flatten().cumsum(0) - 1
    slots = place[batch.pack.target] - 1  # a log-prob stands one before its token
    return Predictions(batch.pack.predictor, batch.pack.ids[None], slots, batch.pack.score, labels.shape)


class OutputLayers:
    """The output layers of models: while `only` is open, they see some of the hidden states."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._places: Tensor | None = None
        self._whole = ExitStack()  # open while the current layer does not expect its input divided
        parts = (part for model in models for part in model.named_modules())
        layers = [part for name, part in parts if name.endswith("output_layer")]
        self.odd = next(
            (type(layer).__name__ for layer in layers if type(layer) is not ColumnParallelLinear), ""
        )
        for layer in layers if not self.odd else ():
            layer.register_forward_pre_hook(self._select, with_kwargs=True)
            layer.register_forward_hook(self._restore, always_call=True)

    def only(self, places: Tensor) -> AbstractContextManager[None]:
        """While this is open, logits are ``(1, N, vocabulary)``: of the hidden states at these places."""
        return swapped(self, "_places", places)

    def _select(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._places is None:
            return None
        hidden, *rest = args
        if layer.sequence_parallel:
            # The layer sums its gradient over the ranks, and each takes its part of it here.
            hidden = gather_from_sequence_parallel_region(hidden, tensor_parallel_output_grad=False)
            self._whole.enter_context(swapped(layer, "sequence_parallel", False))
        chosen = hidden.transpose(0, 1).flatten(0, 1)[self._places]
        return (chosen[:, None], *rest), kwargs

    def _restore(self, *_: Any) -> None:
        self._whole.close()
