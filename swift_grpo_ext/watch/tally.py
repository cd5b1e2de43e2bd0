"""What the ranks count during one optimizer step, add up once at its end, and hand to ms-swift's log."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather

from swift_grpo_ext.watch.records import StepFacts


@dataclass
class Tally:
    """What one rank counts during one optimizer step; the ranks add these up."""

    asked_to_end: float = 0.0  # this rank was told to end the run
    dead: float = 0.0  # this rank's verdict asks to stop the run
    skipped: float = 0.0  # the update was dropped
    elements: float = 0.0  # see `Movement`
    moved: float = 0.0
    log2_ulps: float = 0.0
    masters: float = 0.0  # the same of the float32 copies
    masters_moved: float = 0.0
    surprise: Any = 0.0  # sum over completion tokens that were forwarded of minus their log-prob
    forwarded: Any = 0.0  # number of them: silent completions are left out
    tokens: Any = 0.0  # completion tokens in the loss
    kl: Any = 0.0  # sum over tokens of the estimate of `Probe`
    kl_tokens: Any = 0.0
    infinite: tuple[float, ...] = ()  # for each reward function, how many infinities it gave

    def over_ranks(self, device: torch.device) -> Tally:
        """The sum over all ranks: one small gather."""
        names = [name for name in vars(self) if name != "infinite"]
        values = [*(vars(self)[name] for name in names), *self.infinite]
        mine = torch.stack([torch.as_tensor(value).detach().float().to(device) for value in values])
        total = gather(mine.unsqueeze(0)).double().sum(0).tolist()
        return Tally(**dict(zip(names, total, strict=False)), infinite=tuple(total[len(names) :]))


def add_scalars(
    metrics: Mapping[str, MutableSequence[float]], facts: StepFacts, seconds: Mapping[str, float]
) -> None:
    """Hand the figures of a step to ms-swift's log, and so to every tracker."""
    scalars = {
        "watch/moved": facts.moved,
        "watch/moved_ulps": facts.ulps,
        "watch/master_moved": facts.master_moved,
        "watch/skipped": float(facts.skipped),
        "watch/advantaged": facts.rollout.advantaged,
        "watch/identical_groups": facts.rollout.identical,
        "watch/empty": facts.rollout.empty,
        "watch/entropy": facts.entropy,
        "watch/kl_to_start": facts.kl,
        "watch/engine_ratio": facts.engine.ratio,
        "watch/engine_difference": facts.engine.mean,
        "watch/engine_largest": facts.engine.largest,
    }
    for name, value in scalars.items():
        if value is not None and math.isfinite(value):
            metrics[name].append(value)
    for phase, spent in seconds.items():
        metrics[f"seconds/{phase}"].append(spent)
