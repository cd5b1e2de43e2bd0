"""The monitors' figures as the scalars of the host's log."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableSequence

from swift_grpo_ext.watch.records import StepFacts


def add_scalars(
    metrics: Mapping[str, MutableSequence[float]], facts: StepFacts, seconds: Mapping[str, float]
) -> None:
    """Hand the figures of a step to the host: console, ``logging.jsonl`` and every tracker get them.

    Args:
        metrics: The host's lists of values since its last log, by name; a missing one is made on access.
        facts: Of the step.
        seconds: Spent in each phase.
    """
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
    }
    for name, value in scalars.items():
        if value is not None and math.isfinite(value):
            metrics[name].append(value)
    for phase, spent in seconds.items():
        metrics[f"seconds/{phase}"].append(spent)
