"""What the monitors cost per optimizer step, on parameters of the mini model's size (33 M, float32, CPU).

Times their own work: sampled movement, the norms of the gradients, the check of log-probs, the rules over a
full history, one sign of life. ``--step-seconds`` is what it is held against: 5.19 s is the update phase of
the mini case in the prototype (618 prompt and 128 completion tokens, 8 completions, 2 threads).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from swift_grpo_ext.watch.facts import RewardFacts, RolloutFacts, RunFacts, StepFacts
from swift_grpo_ext.watch.heartbeat import Beat, write_beat
from swift_grpo_ext.watch.learning import LearningMonitor
from swift_grpo_ext.watch.movement import Sampler
from swift_grpo_ext.watch.numerics import bad_rows


def milliseconds(work: Callable[[], object], repeats: int = 9) -> float:
    """Median of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step-seconds", type=float, default=5.19)
    step_seconds = parser.parse_args().step_seconds
    weights = [torch.randn(512, 512) for _ in range(126)]
    gradients = [torch.randn_like(weight) for weight in weights]
    sampler = Sampler(lambda: weights)
    rollout = RolloutFacts(groups=8, rewards=(RewardFacts("r", 1.0),), advantaged=1.0)
    monitor = LearningMonitor(RunFacts(num_generations=8))
    for step in range(200):
        monitor.add(StepFacts(step=step + 1, moved=1.0, rollout=rollout))
    logps, mask = torch.randn(8, 128), torch.ones(8, 128)
    with tempfile.TemporaryDirectory() as folder:
        beat = Beat(0, 1, "forward", 0.0, 0.0)
        costs = {
            "movement": milliseconds(sampler.look),
            "gradient norms": milliseconds(
                lambda: torch.stack(torch._foreach_norm(gradients)).isfinite().all().item()
            ),
            "log-probs, old and policy": 2 * milliseconds(lambda: bad_rows(logps, mask)),
            "rules": milliseconds(lambda: monitor.add(StepFacts(step=201, moved=1.0, rollout=rollout))),
            "sign of life": milliseconds(lambda: write_beat(Path(folder), beat)),
        }
    total = sum(costs.values())
    share = total / 1000 / step_seconds
    print(
        json.dumps(
            {"milliseconds": costs, "total_ms": total, "step_s": step_seconds, "share": share}, indent=1
        )
    )


if __name__ == "__main__":
    main()
