"""Whether parameters move, from a few thousand of them: no gathering, whatever shards them.

Each rank looks at what it holds: whole tensors, its shard of them under ZeRO-3 or FSDP2, and its part of the
optimizer's float32 copies under ZeRO. With LoRA the trainable parameters are those of the adapter. The counts
of the ranks are added up, so every parameter is represented although no rank holds it all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

TENSORS = 64
ELEMENTS = 64

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Where DeepSpeed's optimizers keep their flat float32 partitions: ZeRO-1/2, ZeRO-3, BF16_Optimizer.
_MASTERS = ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups_flat_partition")


@dataclass(frozen=True)
class Movement:
    """How many elements changed between two looks, from a sample of each tensor. Adds up over ranks.

    Attributes:
        elements: Of the sampled tensors.
        moved: Estimate of how many of them have another value than before.
        log2_ulps: Estimate of the sum over those of the base-2 logarithm of the representable steps that they
            moved by.
    """

    elements: float = 0.0
    moved: float = 0.0
    log2_ulps: float = 0.0

    @property
    def share(self) -> float | None:
        """Share of the elements that moved; None if nothing was sampled."""
        return self.moved / self.elements if self.elements else None

    @property
    def ulps(self) -> float | None:
        """Geometric mean of the representable steps that the moved ones moved by; None if none moved."""
        return 2 ** (self.log2_ulps / self.moved) if self.moved else None


class Sampler:
    """Compares sampled elements of tensors with their values at the last look.

    Args:
        tensors: Gives the tensors at each look; their number and sizes stay the same.
        limit: Tensors to sample, spread evenly over all of them.
        elements: Elements of each, at fixed random places.
    """

    def __init__(
        self, tensors: Callable[[], Iterable[Tensor]], limit: int = TENSORS, elements: int = ELEMENTS
    ) -> None:
        self._tensors = tensors
        found = list(tensors())
        self._chosen = _spread(len(found), limit)
        generator = torch.Generator().manual_seed(0)
        self._places: list[Tensor] = []
        self._weights: list[Tensor] = []
        for number in self._chosen:
            size, device = found[number].numel(), found[number].device
            places = torch.randint(size, (min(elements, size),), generator=generator)
            self._places.append(places.to(device))
            self._weights.append(torch.full(places.shape, size / len(places), device=device))
        self._before = self._values()

    def look(self) -> Movement:
        """What changed since the last look."""
        before, self._before = self._before, self._values()
        elements = moved = log2_ulps = 0.0
        for kind, (now, weights) in self._before.items():
            distance = ulp_distance(before[kind][0], now)
            elements += float(weights.sum())
            moved += float(weights[distance != 0].sum())
            log2_ulps += float((distance.clamp(min=1).double().log2() * weights).sum())
        return Movement(elements, moved, log2_ulps)

    def _values(self) -> dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]]:
        """Sampled elements and how many each stands for, for each type and device."""
        found = list(self._tensors())
        values: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        weights: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for number, places, weight in zip(self._chosen, self._places, self._weights, strict=True):
            tensor = found[number].detach()
            kind = tensor.dtype, tensor.device
            values.setdefault(kind, []).append(torch.take(tensor, places))
            weights.setdefault(kind, []).append(weight)
        return {kind: (torch.cat(parts), torch.cat(weights[kind])) for kind, parts in values.items()}


def local_parameters(model: torch.nn.Module) -> Iterator[Tensor]:
    """What this rank holds of each trainable parameter that it holds something of."""
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if hasattr(parameter, "ds_tensor"):  # ZeRO-3: the parameter itself is empty between forwards
            shard: Tensor = parameter.ds_tensor
        elif hasattr(parameter, "to_local"):  # FSDP2
            shard = parameter.to_local()
        else:
            shard = parameter
        if shard.numel() and not shard.is_meta:
            yield shard


def local_masters(optimizer: object) -> Iterator[Tensor]:
    """This rank's float32 copies of the trainable parameters, if DeepSpeed keeps them in memory."""
    inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper around DeepSpeed's
    for name in _MASTERS:
        partitions = getattr(inner, name, None)
        for partition in partitions if isinstance(partitions, (list, tuple)) else ():
            if isinstance(partition, Tensor) and partition.numel() and not partition.is_meta:
                yield partition


def ulp_distance(before: Tensor, now: Tensor) -> Tensor:
    """Representable steps between floats of one type, ``(n,)`` int64; 0 between -0 and +0.

    Floats of one sign are ordered as their bits read as integers; those of the other sign count downwards.
    """
    return (_ordered(now) - _ordered(before)).abs()


def _ordered(values: Tensor) -> Tensor:
    width = values.element_size()
    bits = values.contiguous().view(_BITS[width]).long()
    return torch.where(bits < 0, -(2 ** (8 * width - 1)) - bits, bits)


def _spread(count: int, limit: int) -> list[int]:
    """At most `limit` of the numbers below `count`, evenly spread, the first and the last among them."""
    if count <= limit:
        return list(range(count))
    return [round(step * (count - 1) / (limit - 1)) for step in range(limit)]
