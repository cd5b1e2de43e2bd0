"""Phases of a run, the time spent in each, and the bill: one line for the log, all figures for the report."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

import torch

# Phases of a rank, in the order of a step, with the name to print.
PHASES = {
    "data": "data",
    "prepare": "preparing rows",
    "weight_sync": "weight sync",
    "encode": "encoding for the engine",
    "rollout": "rollout",
    "vision": "vision tower",
    "reward": "rewards",
    "old": "old log-probs",
    "teacher": "log-probs of the teacher",
    "reference": "reference log-probs",
    "logps": "other log-probs",
    "forward": "policy forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "save": "saving",
    "evaluate": "evaluation",
    "log": "logging",
    "start": "start",
    "between": "between steps",
}
SHORTER = {  # options that shorten a phase
    "data": "--dataloader_num_workers",
    "prepare": "MAX_PIXELS, or --dataloader_num_workers",
    "weight_sync": "--move_model_batches, or LoRA with --vllm_enable_lora true",
    "encode": "MAX_PIXELS, or more CPU cores for it",
    "rollout": "vLLM (--use_vllm true), a shorter --max_completion_length",
    "vision": "MAX_PIXELS, or a frozen tower (--freeze_vit true)",
    "reward": "a faster reward function",
    "old": "--num_iterations 1, and a gradient_accumulation_steps that steps_per_generation does not exceed",
    "reference": "--beta 0",
    "save": "a larger --save_steps",
    "evaluate": "a larger --eval_steps",
}
FIRST = 5  # steps covered by the first bill
EVERY = 50  # steps covered by each later bill
_WORTH_A_WORD = 0.3  # share of the time from which a hint is printed


class Now(NamedTuple):
    """The current phase and its start, in seconds on the clock of `Phases`."""

    phase: str
    since: float


def recorded_event() -> torch.cuda.Event | None:
    """An event recorded in the GPU's current stream; None without a GPU in use."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


class Phases:
    """A stack of phases: time of an inner one does not count for the outer; on a GPU, CUDA events time them.

    One thread enters and leaves; others may read `now` and `longest`.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        mark: Callable[[], torch.cuda.Event | None] = recorded_event,
    ) -> None:
        self._clock = clock
        self._mark = mark
        self._names = ["start"]
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._marks: list[tuple[str, torch.cuda.Event | None]] = []  # the phase that ended, and the event
        self.longest: dict[str, float] = {}  # longest stretch of each phase, seconds
        self.now = Now("start", clock())

    def enter(self, phase: str) -> None:
        """Begin a phase inside the current one."""
        self._names.append(phase)
        self._turn()

    def leave(self, phase: str) -> None:
        """End the current phase, if it is this one."""
        if self._names[-1] == phase and len(self._names) > 1:
            self._names.pop()
            self._turn()

    def rest_in(self, phase: str) -> None:
        """Set the phase of a rank outside of all entered phases."""
        self._names[0] = phase
        self._turn()

    def drain(self) -> dict[str, float]:
        """Seconds spent in each phase since the last call."""
        self._turn()
        marks = self._marks
        self._marks = self._marks[-1:]
        seconds = self._seconds
        self._seconds = defaultdict(float)
        events = [event for _, event in marks if event is not None]
        if len(marks) == len(events) > 1:
            events[-1].synchronize()
            seconds = defaultdict(float)
            for (phase, _), (before, after) in zip(marks[1:], pairwise(events), strict=True):
                seconds[phase] += before.elapsed_time(after) / 1000
        return dict(seconds)

    def _turn(self) -> None:
        """Add the time since the last turn to its phase, and switch to the phase on top of the stack."""
        (phase, since) = self.now
        self.now = Now(self._names[-1], self._clock())
        passed = self.now.since - since
        self._seconds[phase] += passed
        self._marks.append((phase, self._mark()))
        self.longest[phase] = max(self.longest.get(phase, 0.0), passed)


class Bill(NamedTuple):
    """Time that one rank spent in each phase over some steps."""

    steps: int
    seconds: Mapping[str, float]  # by phase, summed over the steps
    work: Mapping[str, int]  # ``tokens`` forwarded, and the ``stock tokens`` that ms-swift would forward

    def __str__(self) -> str:
        """The two longest phases, the saved tokens, and how to shorten the longest phase."""
        total = sum(self.seconds.values())
        longest = Counter(self.seconds).most_common(2) if total else []
        parts = [f"{PHASES[name]} {_percent(spent / total)}" for name, spent in longest]
        hints = [
            f" ({PHASES[name]}: {SHORTER[name]})"
            for name, spent in longest[:1]
            if name in SHORTER and spent >= _WORTH_A_WORD * total
        ]
        return f"{total / self.steps:.3g} s a step: {', '.join(parts)}{_saved(self.work)}{''.join(hints)}"


class Billing:
    """Adds up the steps of one rank, and the tokens that it forwards in them."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self.work: Counter[str] = Counter()
        self._steps = 0
        self._of = FIRST

    def add(self, seconds: Mapping[str, float]) -> Bill | None:
        """Add a step's seconds in each phase; returns the bill if one is due."""
        self._seconds.update({name: spent for name, spent in seconds.items() if name != "start"})
        self._steps += 1
        return self.close() if self._steps >= self._of else None

    def close(self) -> Bill | None:
        """The bill of the steps since the last one; None without a step."""
        bill = Bill(self._steps, self._seconds, self.work) if self._steps else None
        self._seconds = Counter()
        self.work = Counter()
        self._steps = 0
        self._of = EVERY
        return bill


def _saved(work: Mapping[str, int]) -> str:
    ours, stock = (work.get(name, 0) for name in ("tokens", "stock tokens"))
    return f"; saved {_percent(1 - ours / stock)} of tokens" if ours < stock else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
