"""Share of the parameters that an optimizer step changes, estimated from a sample of their elements."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TENSORS = 64
ELEMENTS = 64

_MASTERS = (
    # DeepSpeed's optimizers, flat partitions: ZeRO-1/2, ZeRO-3, BF16_Optimizer.
    *("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups_flat_partition"),
    # Megatron's optimizers, by group: distributed, and not distributed.
    *("shard_fp32_from_float16_groups", "fp32_from_float16_groups"),
)
"""Attributes in which optimizers keep their float32 copies of 16-bit weights."""


@dataclass(frozen=True)
class Movement:
    """Number of elements that changed between two looks, estimated from a sample; ranks can be summed."""

    elements: float = 0.0
    moved: float = 0.0

    @property
    def share(self) -> float | None:
        """Share of the elements that moved; None if nothing was sampled."""
        return self.moved / self.elements if self.elements else None


class Sampler:
    """Compares elements at fixed random places of tensors with their values at the last look."""

    def __init__(
        self, tensors: Callable[[], Iterable[Tensor]], limit: int = TENSORS, elements: int = ELEMENTS
    ) -> None:
        self._tensors = tensors
        present = list(tensors())
        generator = torch.Generator().manual_seed(0)
        # Places in some evenly spaced tensors; the number and sizes of the tensors must not change.
        self._places: dict[int, Tensor] = {}
        weights = [torch.empty(0)]  # elements of its tensor that each sampled element represents
        chosen = min(len(present), limit)
        for number in torch.linspace(0, len(present) - 1, chosen).round().int().tolist():
            size = present[number].numel()
            places = torch.randint(size, (min(elements, size),), generator=generator)
            weights.append(torch.full(places.shape, size / len(places)))
            self._places[number] = places.to(present[number].device)
        self._weights = torch.cat(weights)
        self._before = self._values()

    def look(self) -> Movement:
        """Changes since the last look."""
        before, self._before = self._before, self._values()
        moved = self._weights[self._before != before]
        return Movement(float(self._weights.sum()), float(moved.sum()))

    def _values(self) -> Tensor:
        """The sampled elements, on the CPU: the host waits for a single copy."""
        present = list(self._tensors())
        taken = [torch.take(present[number].detach(), places) for number, places in self._places.items()]
        return torch.cat([values.to(taken[0].device) for values in taken]).cpu() if taken else torch.empty(0)


def local_parameters(model: torch.nn.Module) -> Iterator[Tensor]:
    """This rank's shard of each trainable parameter, where it has one."""
    for parameter in (each for each in model.parameters() if each.requires_grad):
        if hasattr(parameter, "ds_tensor"):  # ZeRO-3: the parameter itself is empty between forwards
            shard: Tensor = parameter.ds_tensor
        elif hasattr(parameter, "to_local"):  # FSDP2
            shard = parameter.to_local()
        else:
            shard = parameter
        if shard.numel() and not shard.is_meta:
            yield shard


def local_masters(optimizer: Any) -> Iterator[Tensor]:
    """This rank's float32 master weights, where DeepSpeed or Megatron keeps them in memory."""
    chained = getattr(optimizer, "chained_optimizers", None)  # Megatron; several with expert parallelism
    # Otherwise accelerate's wrapper around DeepSpeed's optimizer.
    for inner in [getattr(optimizer, "optimizer", optimizer)] if chained is None else chained:
        for name in _MASTERS:
            yield from _held(getattr(inner, name, None))


def _held(copies: Any) -> Iterator[Tensor]:
    """The non-empty tensors of a nested list."""
    if isinstance(copies, (list, tuple)):
        for inner in copies:
            yield from _held(inner)
    elif isinstance(copies, Tensor) and copies.numel() and not copies.is_meta:
        yield copies


def keeps_masters(optimizer: Any) -> bool:
    """True if 16-bit weights have float32 master copies, here or inside transformer_engine's optimizer."""
    config = getattr(optimizer, "config", None)  # Megatron's
    is_mixed = any(getattr(config, kind, False) for kind in ("bf16", "fp16"))
    return is_mixed or next(local_masters(optimizer), None) is not None
