"""A plugin with rewards that have the faults of the field, and one that has none."""

import math
import multiprocessing
import os
import signal
import time
from contextlib import suppress

import torch
from swift.rewards import ORM, orms

from swift_grpo_ext.watch.journal import read_events


def good(text):
    return sum(ord(char) % 2 for char in text) / max(len(text), 1)


class Good(ORM):
    def __call__(self, completions, **kwargs):
        return [good(text) for text in completions]


class Constant(ORM):
    def __call__(self, completions, **kwargs):
        return [0.0 for _ in completions]


class Missing(ORM):
    def __call__(self, completions, **kwargs):
        return [None for _ in completions]


class OneMissing(ORM):
    def __call__(self, completions, **kwargs):
        return [None if row % 4 == 3 else good(text) for row, text in enumerate(completions)]


class OneInfinite(ORM):
    def __call__(self, completions, **kwargs):
        return [math.inf if row == 0 else good(text) for row, text in enumerate(completions)]


class Noise(ORM):
    """Constant, but for what floating point leaves behind."""

    def __call__(self, completions, **kwargs):
        return [1e-9 * good(text) for text in completions]


class OfTheBatch(ORM):
    def __call__(self, completions, **kwargs):
        return [0.5]


class Raises(ORM):
    def __call__(self, completions, **kwargs):
        raise KeyError("boxes")


class BlocksUntilTold(ORM):
    """Blocks in its second call until the watchdog has told of it, a minute at most."""

    calls = 0

    def __call__(self, completions, **kwargs):
        self.calls += 1
        deadline = time.monotonic() + 60
        while self.calls == 2 and not self.told() and time.monotonic() < deadline:
            time.sleep(0.05)
        return [good(text) for text in completions]

    def told(self):
        stalls = read_events(self.args.output_dir, ["stall"])
        return any(stall["phase"] == "reward" for stall in stalls)


class BlocksForEver(ORM):
    """Blocks in its third call."""

    calls = 0

    def __call__(self, completions, **kwargs):
        self.calls += 1
        if self.calls == 3:
            time.sleep(600)
        return [good(text) for text in completions]


class KillsWorkers(ORM):
    """Kills the workers that load data, as the machine does when memory runs out."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.others = set(multiprocessing.active_children())

    def __call__(self, completions, **kwargs):
        for worker in set(multiprocessing.active_children()) - self.others:
            worker.kill()
            # torch's handler of SIGCHLD raises wherever this process is: let it be here, not in the midst of a
            # check of types, which would raise an error of its own. The loader misses the worker all the same.
            with suppress(RuntimeError):
                worker.join(10)
                time.sleep(0.1)
        return [good(text) for text in completions]


class EntersAlone(ORM):
    """Rank 0 enters a collective in its second call that rank 1 never enters."""

    calls = 0

    def __call__(self, completions, **kwargs):
        self.calls += 1
        if self.calls == 1:
            self.group = torch.distributed.new_group()
        elif os.environ.get("RANK") == "0":
            torch.distributed.barrier(group=self.group)
        return [good(text) for text in completions]


class Slow(ORM):
    """Takes a quarter of a second."""

    def __call__(self, completions, **kwargs):
        time.sleep(0.25)
        return [good(text) for text in completions]


class SleepsOnRank1(ORM):
    def __call__(self, completions, **kwargs):
        if os.environ.get("RANK") == "1":
            time.sleep(600)
        return [good(text) for text in completions]


class Signals(ORM):
    """Asks its own process to end during the second step."""

    number = signal.SIGTERM
    calls = 0

    def __call__(self, completions, **kwargs):
        self.calls += 1
        if self.calls == 2:
            signal.raise_signal(self.number)
        return [good(text) for text in completions]


class SignalsInterrupt(Signals):
    number = signal.SIGINT


class Kills(Good):
    """Kills its process in the middle of the fourth step."""

    calls = 0

    def __call__(self, completions, **kwargs):
        self.calls += 1
        if self.calls == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(completions, **kwargs)


for kind in (
    Kills,
    BlocksUntilTold,
    BlocksForEver,
    KillsWorkers,
    EntersAlone,
    Slow,
    SleepsOnRank1,
    Signals,
    SignalsInterrupt,
    Good,
    Constant,
    Missing,
    OneMissing,
    OneInfinite,
    Noise,
    OfTheBatch,
    Raises,
):
    orms[f"test_{kind.__name__}"] = kind
