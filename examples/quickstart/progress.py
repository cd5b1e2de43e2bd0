"""What the quickstart prints while the host works."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TextIO

_STAGES = 6
_STEP = re.compile(r"(?:'global_step/max_steps': '|^step )(\d+)/(\d+)")
_SAID = re.compile(r"^swift-grpo-ext.*|swift-grpo-ext \[held-out\] (?:step|best).*")
_LINES_A_RUN = 20


def announce(stage: int, what: str) -> None:
    """Head of a stage."""
    print(f"[{stage}/{_STAGES}] {what}", flush=True)


class Progress:
    """Takes the host's output line by line: keeps it in a log, and prints about twenty lines of a run.

    Args:
        log: Gets every line.
        figures: Names of the logged figures to print.
    """

    def __init__(self, log: TextIO, figures: Sequence[str]) -> None:
        self._log = log
        self._figures = figures
        self._started = time.monotonic()
        self._printed = -1
        print("      ms-swift is starting (its imports take 10 to 20 s) ...", flush=True)

    def __call__(self, line: str) -> None:
        self._log.write(line + "\n")
        self._log.flush()
        said = _SAID.search(line)
        if said:
            print(f"      {said[0]}", flush=True)
        found = _STEP.search(line)
        if found is None:
            return
        step, steps = int(found[1]), int(found[2])
        part = step * _LINES_A_RUN // steps
        if part > self._printed:
            self._printed = part
            print(f"      {self._words(line, step, steps)}", flush=True)

    def _words(self, line: str, step: int, steps: int) -> str:
        seconds = time.monotonic() - self._started
        values = [
            f"{name} {value:.3f}" for name in self._figures if (value := _figure(line, name)) is not None
        ]
        return f"step {step:>4} of {steps}   {'   '.join(values)}   {seconds:4.0f} s"


def _figure(line: str, name: str) -> float | None:
    found = re.search(rf"(?:'{re.escape(name)}': '?|  {re.escape(name)} )([-+.\deE]+)", line)
    return None if found is None else float(found[1])
