"""What the monitors cost: real optimizer steps of one run, with them and without them in turn.

    python benchmarks/monitors.py --size mini --group 8 --image-tokens 576 --completion 128 \\
        --beta 0.04 --device cpu --repeats 12 --json OUT

One trainer, built by the host's own pipeline, trains with made-up completions and rewards (sampling would
only make the steps longer). Every second step its monitors are off; a pair is a step with them and the one
after it without, in turn the other way round. Measured is all from the begin of a step to the begin of the
next: passes, backward, optimizer, judging, logging. ``cpu`` figures are the process's time on its cores,
which a busy machine disturbs less than the wall clock. The difference of two long steps is mostly noise, so
the monitors' own calls are timed as well (``own``). The check of the
rollout engine makes no pass of its own; rollouts are made up.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import update_phase  # first: it puts the package on the path
from bench_measure import machine
from bench_operations import Case
from bench_shapes import SHAPES
from bench_trainers import OURS, build_trainer, made_up_rollouts
from swift.callbacks import TrainerCallback

from swift_grpo_ext.trainer import tracing

WARM_UP = 2


class InTurn(TrainerCallback):
    """Turns the monitors off in every second step, and takes the times.

    Attributes:
        times: For each step, whether they were on, wall-clock seconds, seconds on the cores.
    """

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer.args, trainer)
        self.times: list[tuple[bool, float, float]] = []
        monitors = trainer.monitors
        self._monitors, self._watch, self._traces = monitors, monitors.watch, monitors.tracer.on
        self._before: tuple[float, float] | None = None
        self._on = True

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step begins, and the one before is over."""
        self._take_time()
        step = state.global_step
        self._set(step % 4 in (0, 3))  # on off, off on: neither has the older caches
        self._before = (time.perf_counter(), time.process_time())

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last step is over."""
        self._take_time()
        self._set(True)

    def _take_time(self) -> None:
        if self._before is not None:
            wall, cores = self._before
            self.times.append((self._on, time.perf_counter() - wall, time.process_time() - cores))

    def _set(self, on: bool) -> None:
        self._on = on
        self._monitors.watch = self._watch if on else None
        self._monitors.tracer.on = self._traces and on


class OwnWork:
    """Times the calls that a trainer makes for its monitors.

    Attributes:
        seconds: Their sum.
    """

    CALLS = ("end_step", "look_at_rollout", "add_pass", "end_micro_batch")

    def __init__(self, trainer: Any) -> None:
        self.seconds = 0.0
        monitors = trainer.monitors
        owned = [(monitors, name) for name in self.CALLS] + [(monitors.tracer, "_look_at_gradients")]
        for owner, name in owned:
            setattr(owner, name, self._timed(getattr(owner, name)))
        tracing.bad_rows = self._timed(tracing.bad_rows)

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed_call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start

        return timed_call


def shares(times: list[tuple[bool, float, float]]) -> dict[str, dict[str, float]]:
    """For the wall clock and for the cores: by how much a step with monitors is longer, over pairs."""
    found = {}
    for name, column in (("wall", 1), ("cpu", 2)):
        pairs = []
        for first, second in zip(times[::2], times[1::2], strict=False):
            with_them, without = (first, second) if first[0] else (second, first)
            pairs.append(with_them[column] / without[column] - 1)
        error = statistics.stdev(pairs) / len(pairs) ** 0.5
        found[name] = {
            "median": statistics.median(pairs),
            "mean": statistics.fmean(pairs),
            "standard_error": error,
        }
    return found


def measure(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All figures of one case."""
    case: Case = update_phase.case_of(asked)
    model = update_phase.build_checkpoint(asked.family, SHAPES[asked.size], case, folder / "model")
    arguments = {
        "use_cpu": asked.device == "cpu",
        "max_steps": WARM_UP + 2 * asked.repeats,
        "learning_rate": 1e-6,
        "log_completions": True,
    }
    dataset = update_phase.build_dataset(case, folder / "data")
    trainer = build_trainer(OURS, model, dataset, folder / "run", case, **arguments)
    made_up_rollouts(trainer, case, 0)
    turns = InTurn(trainer)
    own = OwnWork(trainer)
    trainer.add_callback(turns)
    trainer.train()
    watched = sum(on for on, _, _ in turns.times)
    times = turns.times[WARM_UP:]
    seconds = statistics.median(wall for _, wall, _ in times)
    return {
        "share": shares(times),
        "own_ms": 1000 * own.seconds / watched,
        "own_share": own.seconds / watched / seconds,
        "step_seconds": seconds,
        "times": times,
        "size": asked.size,
        "case": asdict(case),
        "machine": machine(trainer.accelerator.device),
    }


def main() -> None:
    asked = update_phase.arguments_of_benchmark(__doc__)
    del os.environ["SWIFT_GRPO_EXT_DISABLE"]  # the other benchmarks leave the monitors out
    with tempfile.TemporaryDirectory() as folder:
        update_phase.report(asked, measure(asked, Path(folder)))


if __name__ == "__main__":
    main()
