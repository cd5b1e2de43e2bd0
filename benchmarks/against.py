"""Our update phase in this checkout against that of another commit, in turn.

    git worktree add ../before COMMIT
    python benchmarks/against.py ../before --family qwen2_5_vl --size mini --repeats 5

Each checkout runs in a process of its own, with its own benchmark files, on the same weights, rollouts and
rewards; one waits while the other computes. Printed is the processor time of each pair's training steps, the
median of their ratios (below 1: this checkout takes less) and the lowest and highest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--family", default="qwen2_5_vl")
    parser.add_argument("--size", default="mini")
    parser.add_argument("--tuner", default="full", choices=["full", "lora"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--answers", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.answers:
        answer(asked)
    else:
        print(json.dumps(compare(asked)))


def compare(asked: argparse.Namespace) -> dict[str, Any]:
    """Seconds of both checkouts, and their ratios."""
    options = ["--family", asked.family, "--size", asked.size, "--tuner", asked.tuner, "--answers"]
    children = {}
    for name, checkout in (("before", asked.before.resolve()), ("here", HERE)):
        children[name] = subprocess.Popen(
            [sys.executable, __file__, str(checkout), *options],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": str(checkout)},
        )
    seconds: dict[str, list[float]] = {name: [] for name in children}
    for repeat in range(-1, asked.repeats):  # the first with the self-check
        for name, child in children.items():
            took = one_update(child, max(repeat, 0))
            if repeat >= 0:
                seconds[name].append(took)
    for child in children.values():
        child.communicate()
    ratios = [here / before for here, before in zip(seconds["here"], seconds["before"], strict=True)]
    return {
        "family": asked.family,
        "tuner": asked.tuner,
        "ratio": statistics.median(ratios),
        "ratios": [min(ratios), max(ratios)],
        "seconds": seconds,
    }


def one_update(child: subprocess.Popen[str], seed: int) -> float:
    """Seconds of one update phase in a child process.

    Raises:
        RuntimeError: The child has ended.
    """
    assert child.stdin is not None
    assert child.stderr is not None
    child.stdin.write(f"{seed}\n")
    child.stdin.flush()
    log = []
    for line in child.stderr:
        if line.startswith("took "):
            return float(line.split()[1])
        log.append(line)
    raise RuntimeError("".join(log[-30:]))


def answer(asked: argparse.Namespace) -> None:
    """Run an update phase for each line that comes in, and say what processor time it took."""
    sys.path[:0] = [f"{asked.before}/benchmarks", str(asked.before)]
    from swift_grpo_ext.testing import cpu_environment

    os.environ.update(cpu_environment(), SWIFT_GRPO_EXT_DISABLE="callbacks")
    import bench_trainers
    import update_phase
    from bench_models import PATCH, build_checkpoint
    from bench_operations import Case
    from bench_shapes import SHAPES

    case = Case(8, 576, 42, 128, 0.04, True, asked.tuner == "lora")
    arguments = {"use_cpu": True, "per_device_train_batch_size": case.group, "gradient_accumulation_steps": 1}
    if case.lora:
        arguments |= {"tuner_type": "lora", "lora_dropout": 0.0}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        model = build_checkpoint(asked.family, SHAPES[asked.size], case, folder / "model")
        rows = update_phase.build_dataset(case, folder / "data", PATCH[asked.family])
        trainer = bench_trainers.build_trainer(
            bench_trainers.OURS, model, rows, folder / "run", case, **arguments
        )
        step = trainer.training_step
        took = []

        def timed_step(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            loss = step(*args, **kwargs)
            took.append(time.process_time() - start)
            return loss

        trainer.training_step = timed_step
        for line in sys.stdin:
            bench_trainers.made_up_rollouts(trainer, case, int(line))
            trainer.model.zero_grad(set_to_none=True)
            bench_trainers.run_update(trainer)
            print(f"took {sum(took)}", file=sys.stderr, flush=True)
            took.clear()


if __name__ == "__main__":
    main()
