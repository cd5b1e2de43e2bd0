"""Whole training steps with rollouts by transformers: the host's trainer and ours, in one process.

    python benchmarks/step.py --family qwen2_5_vl --size mini --group 8 --image-tokens 576 \\
        --completion 128 --beta 0.04 --device cpu --repeats 3 --json OUT

Measured is the trainer's training step: rollouts, encoding, passes, loss and backward. The optimizer's own
step is the same on both sides and left out. Rewards are made up, and every completion has the full length.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import update_phase  # first: it puts the package on the path
from bench_measure import Peak, exact_heap, machine, median, peak_memory, timed
from bench_operations import Case
from bench_trainers import Update, attributes, counted, made_up_rewards


@dataclass
class Step:
    """One training step.

    Attributes:
        seconds: Wall clock of the whole.
        rollout_seconds: Of the sampling in it.
        peak: Memory at its peak and at its start.
        counts: Tower calls and tokens of the language model.
    """

    seconds: float = 0.0
    rollout_seconds: float = 0.0
    peak: Peak = field(default_factory=Peak)
    counts: Update = field(default_factory=Update)


def full_length(trainer: Any, case: Case) -> None:
    """Let every completion have all its tokens, whatever the random model would like to end with."""
    prepare = trainer.engine._prepare_generation_config

    def longest(*args: Any, **kwargs: Any) -> Any:
        config = prepare(*args, **kwargs)
        config.min_new_tokens = case.completion
        return config

    trainer.engine._prepare_generation_config = longest


def run_step(trainer: Any, seed: int) -> Step:
    """One call of the trainer's own ``train`` for one step."""
    done = Step()
    made_up_rewards(trainer, seed)
    device = trainer.accelerator.device
    step, generate = trainer.training_step, trainer._generate_completions

    def training_step(*args: Any, **kwargs: Any) -> Any:
        seconds, result = timed(lambda: step(*args, **kwargs), device)
        done.seconds += seconds
        return result

    def generated(*args: Any, **kwargs: Any) -> Any:
        done.rollout_seconds, result = timed(lambda: generate(*args, **kwargs), device)
        return result

    trainer._step, trainer._buffered_inputs = 0, None
    replaced = {"training_step": training_step, "_generate_completions": generated}
    with attributes(trainer, replaced), counted(trainer, done.counts), peak_memory(device) as done.peak:
        trainer.train()
    return done


def measure(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All figures of one case."""
    case = update_phase.case_of(asked)
    with exact_heap():  # memory
        trainers = update_phase.build_both(asked, case, folder)
        for trainer in trainers.values():
            full_length(trainer, case)
        run_step(trainers["ext"], 0)  # with the self-check, and with what a process loads and allocates once
        first = {name: run_step(trainer, 0) for name, trainer in trainers.items()}
    steps: dict[str, list[Step]] = {name: [] for name in trainers}
    for repeat in range(asked.repeats):
        for name, trainer in trainers.items():
            steps[name].append(run_step(trainer, repeat))
    seconds = {name: [step.seconds for step in done] for name, done in steps.items()}
    rollouts = {name: [step.rollout_seconds for step in done] for name, done in steps.items()}
    last = {name: done[-1] for name, done in steps.items()}
    peaks = {
        name: update_phase.bytes_of_weights(trainers[name]) + step.peak.above for name, step in first.items()
    }
    return {
        "ratio": median(seconds["stock"]) / median(seconds["ext"]),
        "stock_seconds": median(seconds["stock"]),
        "ext_seconds": median(seconds["ext"]),
        "all_seconds": seconds,
        "stock_rollout_seconds": median(rollouts["stock"]),
        "ext_rollout_seconds": median(rollouts["ext"]),
        "peak_memory_ratio": peaks["ext"] / peaks["stock"],
        "peak_bytes": peaks,
        "tower_calls": last["ext"].counts.tower_calls,
        "stock_tower_calls": last["stock"].counts.tower_calls,
        "tokens": last["ext"].counts.tokens,
        "stock_tokens": last["stock"].counts.tokens,
        "family": asked.family,
        "size": asked.size,
        "case": asdict(case),
        "backend": asked.backend,
        "machine": machine(trainers["ext"].accelerator.device),
    }


def main() -> None:
    asked = update_phase.arguments_of_benchmark(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        update_phase.report(asked, measure(asked, Path(folder)))


if __name__ == "__main__":
    main()
