"""Interface between the monitors and the trainer: the trainer's facts, the monitors' counts, the log."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from accelerate.utils import gather
from torch import nn

from swift_grpo_ext.watch.guard import Guard
from swift_grpo_ext.watch.movement import keeps_masters, local_parameters
from swift_grpo_ext.watch.records import RunFacts, StepFacts


class Watched(Protocol):
    """ms-swift's GRPO trainer as the monitors see it; `swift_grpo_ext.trainer.host.Host` has the rest."""

    guard: Guard
    args: Any
    state: Any
    accelerator: Any
    model: nn.Module
    optimizer: Any
    num_generations: int
    beta: float
    scoring: Any  # our `Scoring`
    _metrics: dict[str, defaultdict[str, list[float]]]


def run_facts(trainer: Watched) -> RunFacts:
    """Facts of a run about to take its first step, with model and optimizer prepared."""
    args = trainer.args
    types = Counter(tensor.dtype for tensor in local_parameters(trainer.model))
    return RunFacts(
        num_generations=trainer.num_generations,
        beta=float(trainer.beta or 0.0),
        temperature=float(args.temperature),
        learning_rate=args.learning_rate,
        precision=str(types.most_common(1)[0][0]).removeprefix("torch.") if types else "float32",
        masters=keeps_masters(trainer.optimizer),
    )


@dataclass
class Tally:
    """Counts of one rank during one optimizer step; they are summed over the ranks."""

    asked_to_end: float = 0.0  # this rank was asked to end the run
    dead: float = 0.0  # this rank's verdict is to stop the run
    scored: float = 0.0  # some completion of the rollout was scored
    skipped: float = 0.0  # the update was dropped
    elements: float = 0.0  # see `Movement`
    moved: float = 0.0
    masters: float = 0.0  # the same of the float32 copies
    masters_moved: float = 0.0
    surprise: Any = 0.0  # sum of -log-prob over the completion tokens that were forwarded
    forwarded: Any = 0.0  # number of these tokens: silent completions are left out
    tokens: Any = 0.0  # completion tokens in the loss

    def over_ranks(self, device: torch.device) -> "Tally":
        """The sum over all ranks: one small gather."""
        mine = [torch.as_tensor(value).detach().float().to(device) for value in vars(self).values()]
        return Tally(*gather(torch.stack(mine).unsqueeze(0)).double().sum(0).tolist())


def add_scalars(
    metrics: Mapping[str, MutableSequence[float]], facts: StepFacts, seconds: Mapping[str, float]
) -> None:
    """Add the metrics of a step to ms-swift's log, and so to every tracker."""
    scalars = {
        "watch/moved": facts.moved,
        "watch/master_moved": facts.master_moved,
        "watch/skipped": float(facts.skipped),
        "watch/advantaged": facts.rollout.advantaged,
        "watch/identical_groups": facts.rollout.identical,
        "watch/empty": facts.rollout.empty,
        "watch/entropy": facts.entropy,
        "watch/engine_ratio": facts.engine.ratio,
        "watch/engine_difference": facts.engine.mean,
        "watch/engine_largest": facts.engine.largest,
    }
    for name, value in scalars.items():
        if value is not None and math.isfinite(value):
            metrics[name].append(value)
    for phase, spent in seconds.items():
        metrics[f"seconds/{phase}"].append(spent)
