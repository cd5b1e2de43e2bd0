"""What the ranks count during one optimizer step, and add up once at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather


@dataclass
class Tally:
    """What one rank counts during one optimizer step; the ranks add these up.

    Attributes:
        asked_to_end: This rank was told to end the run.
        dead: This rank's verdict asks to stop the run.
        skipped: The update was dropped.
        elements, moved, log2_ulps: See `Movement`.
        masters, masters_moved: The same of the float32 copies.
        loss: Sum over micro-batches, as the trainer scales it.
        surprise: Sum over completion tokens that were forwarded of minus their log-prob.
        forwarded: Number of them: silent completions are left out.
        tokens: Completion tokens in the loss.
        kl, kl_tokens: Sum over tokens of the estimate of `Probe`, and their number.
        infinite: For each reward function, how many infinities it gave.
    """

    asked_to_end: float = 0.0
    dead: float = 0.0
    skipped: float = 0.0
    elements: float = 0.0
    moved: float = 0.0
    log2_ulps: float = 0.0
    masters: float = 0.0
    masters_moved: float = 0.0
    loss: Any = 0.0
    surprise: Any = 0.0
    forwarded: Any = 0.0
    tokens: Any = 0.0
    kl: Any = 0.0
    kl_tokens: Any = 0.0
    infinite: tuple[float, ...] = ()

    def over_ranks(self, device: torch.device) -> Tally:
        """The sum over all ranks: one small gather."""
        names = [name for name in vars(self) if name != "infinite"]
        values = [*(vars(self)[name] for name in names), *self.infinite]
        mine = torch.stack([torch.as_tensor(value).detach().float().to(device) for value in values])
        total = gather(mine.unsqueeze(0)).double().sum(0).tolist()
        return Tally(**dict(zip(names, total, strict=False)), infinite=tuple(total[len(names) :]))
