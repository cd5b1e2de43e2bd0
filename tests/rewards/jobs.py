"""Rewards and jobs that child processes of the tests import."""

import os
import signal
import sys
import time
from dataclasses import dataclass

from swift_grpo_ext.rewards.contract import Reward


@dataclass(frozen=True)
class Does:
    """A job that does what the request says."""

    def load(self):
        return do


def do(what, argument=None):
    if what == "hang":
        time.sleep(3600)
    if what == "spin":
        while True:
            pass
    if what == "raise":
        raise ValueError(argument)
    if what == "exit":
        os._exit(argument)
    if what == "interrupt":
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(3600)
    if what == "print":
        print(argument)
        print(argument, file=sys.stderr)
    if what == "variable":
        return os.environ.get(argument)
    if what == "pid":
        return os.getpid()
    return argument


@dataclass(frozen=True)
class CannotLoad:
    def load(self):
        raise ImportError("no such thing")


class Hangs:
    """An ORM that hangs on one completion, raises on another, and else measures the length."""

    def __init__(self, args=None):
        self.args = args

    def __call__(self, completions, **columns):
        for completion in completions:
            do(completion, 3)
        return [float(len(completion)) for completion in completions]


class HangsAsync(Hangs):
    async def __call__(self, completions, **columns):
        return super().__call__(completions, **columns)


class Whole(Hangs):
    whole_batch = True

    def __call__(self, completions, **columns):
        do(completions[0])
        return [len(completion) / max(map(len, completions)) for completion in completions]


def uneven(completions, **columns):
    return {"two": [1.0, 2.0], "none": []}.get(completions[0], [0.5])


def needs_columns(completions, solution, trainer_state=None, **columns):
    assert not trainer_state.log_history
    return [
        float(completion == gold) + trainer_state.global_step
        for completion, gold in zip(completions, solution, strict=True)
    ]


def outside(completion, columns):
    return 7.0


def broken(completion, columns):
    raise KeyError(completion)


def a_reward(function, **fields):
    return Reward("ext_test", function=function, **fields)
