"""Whether parameters move, from a few thousand of them: no gathering, whatever shards them.

Each rank looks at what it holds: whole tensors, its shard of them under ZeRO-3 or FSDP2, and its part of the
optimizer's float32 copies under ZeRO. With LoRA the trainable parameters are those of the adapter. The counts
of the ranks are added up, so every parameter is represented although no rank holds it all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TENSORS = 64
ELEMENTS = 64

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Where DeepSpeed's optimizers keep their flat float32 partitions: ZeRO-1/2, ZeRO-3, BF16_Optimizer.
_MASTERS = ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups_flat_partition")


@dataclass(frozen=True)
class Movement:
    """How many sampled elements changed between two looks. Adds up over ranks.

    Attributes:
        sampled: Elements looked at.
        moved: Those with another value than before.
        log2_ulps: Sum over the moved ones of the base-2 logarithm of the representable steps they moved by.
    """

    sampled: float = 0.0
    moved: float = 0.0
    log2_ulps: float = 0.0

    @property
    def share(self) -> float | None:
        """Moved of sampled; None if nothing was sampled."""
        return self.moved / self.sampled if self.sampled else None

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
        self._chosen = [round(step * (len(found) - 1) / max(limit - 1, 1)) for step in range(limit)]
        if len(found) <= limit:
            self._chosen = list(range(len(found)))
        generator = torch.Generator().manual_seed(0)
        self._places = [
            torch.randint(found[number].numel(), (min(elements, found[number].numel()),), generator=generator).to(
                found[number].device
            )
            for number in self._chosen
        ]
        self._before = self._values()

    def look(self) -> Movement:
        """What changed since the last look."""
        now = self._values()
        movement = _compare(self._before, now)
        self._before = now
        return movement

    def _values(self) -> list[Tensor]:
        """Sampled elements, one tensor for each type and device."""
        found = list(self._tensors())
        buckets: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for number, places in zip(self._chosen, self._places, strict=True):
            tensor = found[number].detach()
            buckets.setdefault((tensor.dtype, tensor.device), []).append(torch.take(tensor, places))
        return [torch.cat(parts) for parts in buckets.values()]


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


def local_masters(optimizer: Any) -> Iterator[Tensor]:
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


def _compare(before: Sequence[Tensor], now: Sequence[Tensor]) -> Movement:
    sampled = moved = log2_ulps = 0.0
    for old, new in zip(before, now, strict=True):
        distance = ulp_distance(old, new)
        steps = distance[distance != 0].double()
        sampled += old.numel()
        moved += steps.numel()
        log2_ulps += float(steps.log2().sum())
    return Movement(sampled, moved, log2_ulps if math.isfinite(log2_ulps) else 0.0)
