"""What a step costs beside the work of the model: a tiny text model, ms-swift's trainer and ours in turn.

    python benchmarks/fixed_cost.py --steps 60 --repeats 5 --json OUT

Completions are made up (the self-test's), so a step is rows, rewards, passes, optimizer and logging. Measured
is the time on the cores of this process from one step's first row to the next one's, which other work on the
machine disturbs less than the wall clock. Each repeat is a run of either trainer, one after the other; its
figure is the median of its steps. ``--profile`` shows where the time of our trainer goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from pairs.cases import BASE, cut
from pairs.scripted import OurTrainer, StockTrainer, TextReward
from swift.rewards import orms
from swift.trainers.trainer_factory import TrainerFactory

from swift_grpo_ext import register, testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.testing.families import TINY

WARM_UP = 10  # steps


class Clock:
    """Mixin of a trainer: takes the time at the first row of each step."""

    starts: ClassVar[list[float]] = []  # seconds on the cores, of the newest run

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """The rows of a step."""
        Clock.starts.append(time.process_time())
        return super().get_batch_samples(*args, **kwargs)  # type: ignore[misc]


class Stock(Clock, StockTrainer):
    """ms-swift's own."""


class Ours(Clock, OurTrainer):
    """Ours."""


TRAINERS = {"stock": Stock, "ours": Ours}
ARGUMENTS = {
    "stock": "swift.rlhf_trainers.GRPOConfig",
    "ours": "swift_grpo_ext.trainer.arguments.GRPOConfig",
}


def milliseconds(kind: str, model: Path, data: Path, options: argparse.Namespace) -> list[float]:
    """Of each step of a run behind the first ones."""
    Clock.starts = []
    register()  # else the plugin file puts its own trainer in place
    orms["by_text"] = TextReward
    with tempfile.TemporaryDirectory() as output:
        sizes = cut(8 // options.accumulation, options.accumulation)
        given = {**BASE, **sizes, "max_steps": options.steps, "save_strategy": "no"}
        given |= TINY[options.family].host
        arguments = testing.grpo_arguments(model, data, output, external_plugins=plugin_file(), **given)
        own = {**TrainerFactory.TRAINER_MAPPING, "grpo": f"{__name__}.{TRAINERS[kind].__name__}"}
        theirs = {**TrainerFactory.TRAINING_ARGS_MAPPING, "grpo": ARGUMENTS[kind]}
        with (
            swapped(TrainerFactory, "TRAINER_MAPPING", own),
            swapped(TrainerFactory, "TRAINING_ARGS_MAPPING", theirs),
        ):
            testing.run_in_process("rlhf", arguments, {"SWIFT_GRPO_EXT_GROUP_BATCH": "0"})
    starts = Clock.starts[WARM_UP:]
    return [1e3 * (end - start) for start, end in pairwise(starts)]


def rows(folder: Path) -> Path:
    """Sixteen short questions."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.jsonl"
    questions = [[{"role": "user", "content": f"Which digit comes after {number}?"}] for number in range(16)]
    path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in questions))
    return path


def main() -> None:
    """Print the figures of both trainers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--family", default="llama", choices=[name for name in TINY if not TINY[name].vision])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--accumulation", type=int, default=1, help="micro-batches of the 8 completions")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="of one run of ours, functions by their time")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        testing.tiny_checkpoint(options.family, model)
        data = rows(Path(folder) / "data")
        run = partial(milliseconds, model=model, data=data, options=options)
        if options.profile:
            profile = cProfile.Profile()
            profile.runcall(run, "ours")
            pstats.Stats(profile).sort_stats("cumulative").print_stats(r"swift_grpo_ext|accelerate", 70)
            return
        medians: dict[str, list[float]] = {kind: [] for kind in TRAINERS}
        for _ in range(options.repeats):
            for kind, found in medians.items():
                found.append(statistics.median(run(kind)))
    medians["difference"] = [
        ours - stock for stock, ours in zip(medians["stock"], medians["ours"], strict=True)
    ]
    for kind, found in medians.items():
        print(
            f"{kind}: {statistics.median(found):.1f} ms of processor time a step "
            f"({min(found):.1f} to {max(found):.1f} in {len(found)} runs)"
        )
    if options.json:
        options.json.write_text(
            json.dumps({"options": vars(options), "medians": medians}, default=str, indent=1)
        )


if __name__ == "__main__":
    main()
