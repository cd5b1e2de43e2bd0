"""A plugin with rewards that have the faults of the field, and one that has none."""

import math
import os
import signal
import time

from swift.rewards import ORM, orms


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


class OfTheBatch(ORM):
    def __call__(self, completions, **kwargs):
        return [0.5]


class Raises(ORM):
    def __call__(self, completions, **kwargs):
        raise KeyError("boxes")


class Sleeps(ORM):
    """Blocks for three seconds in its second call."""

    calls = 0

    def __call__(self, completions, **kwargs):
        self.calls += 1
        if self.calls == 2:
            time.sleep(3)
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
    Sleeps,
    SleepsOnRank1,
    Signals,
    SignalsInterrupt,
    Good,
    Constant,
    Missing,
    OneMissing,
    OneInfinite,
    OfTheBatch,
    Raises,
):
    orms[f"test_{kind.__name__}"] = kind
