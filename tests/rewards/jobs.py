"""Rewards and jobs that child processes of the tests import."""

import os
import re
import signal
import sys
import time

from swift_grpo_ext.rewards.contract import Reward


def do(what, argument=None):  # noqa: PLR0912
    if what == "hang":
        time.sleep(3600)
    if what == "spin":
        while True:
            pass
    if what == "regex":  # hangs in C, where no signal of Python and no thread gets a turn
        re.fullmatch(r"(a|a)*b", "a" * 60)
    if what == "raise":
        raise ValueError(argument)
    if what == "exit":
        os._exit(argument)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "sys.exit":
        sys.exit(1)
    if what == "print":
        print(argument)
        print(argument, file=sys.stderr)
    if what == "variable":
        return os.environ.get(argument)
    if what == "pid":
        return os.getpid()
    if what == "slow_pid":
        time.sleep(0.2)
        return os.getpid()
    if what == "modules":
        return argument in sys.modules
    return argument


def _no_such_thing():
    raise ImportError("no such thing")


class CannotLoad:
    """Unpickling it raises."""

    def __call__(self):
        pass

    def __reduce__(self):
        return _no_such_thing, ()


class Hangs:
    """An ORM that hangs on one completion, raises on another, and else measures the length."""

    def __init__(self, args=None):
        self.args = args

    def __call__(self, completions, **columns):
        for completion in completions:
            do(completion, 3)
        return [float(len(completion)) for completion in completions]


class Limited(Hangs):
    time_limit = 2.0


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


def broken(completion, columns):
    raise KeyError(completion)


def a_reward(function, **fields):
    return Reward("ext_test", function=function, **fields)
