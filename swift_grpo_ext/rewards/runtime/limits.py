"""A hard limit for any reward function: it runs in child processes that are killed when it is over."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.contract import RewardFunction, Score
from swift_grpo_ext.rewards.runtime.batch import Batch, checked_scores
from swift_grpo_ext.rewards.runtime.ledger import Failure, FailureKind, ledger, replay_file, row_in_words
from swift_grpo_ext.rewards.runtime.pool import Answer, Pool
from swift_grpo_ext.rewards.runtime.runner import worker_count
from swift_grpo_ext.rewards.runtime.worker import PickledJob
from swift_grpo_ext.settings import current_settings


class Limited:
    """A reward function whose every completion is scored within a number of seconds, or not at all.

    It gets one completion at a time in a child process without a GPU, or the batch if it has an attribute
    ``whole_batch = True``. It is pickled: its class must be importable. A RewardError if it cannot be.
    """

    keeps_ledger = True

    def __init__(self, function: RewardFunction, seconds: float, name: str) -> None:
        self.name = name
        if not seconds > 0:
            raise RewardError(f"a limit of {seconds} s", where=name, fix="give seconds above 0")
        self.whole_batch = bool(getattr(function, "whole_batch", False))
        try:
            job = PickledJob(pickle.dumps(function), _plugin_files())
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            fix = "define its class at the top of a module or plugin file, under the name it keeps"
            raise RewardError(f"cannot be sent to a child process: {error}", where=name, fix=fix) from None
        self.pool = Pool(job, worker_count(current_settings()), seconds)
        self.pool.warm_up()
        arguments = getattr(function, "args", None)
        self._replay = replay_file(getattr(arguments, "output_dir", None))

    def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:
        """Score a batch; None for a completion without a score."""
        batch = Batch.of(completions, {name: _light(value) for name, value in columns.items()})
        parts = [batch] if self.whole_batch else [batch.select([row]) for row in range(len(batch))]
        requests = [(list(part.completions), {**part.columns, **part.shared}) for part in parts]
        answers = self.pool.map(requests, give_up_after=current_settings().reward_failures)
        ledger(self.name).scored(len(batch), [answer.seconds for answer in answers])
        scores: list[Score] = []
        for part, answer in zip(parts, answers, strict=True):
            if answer.ended == "value":
                # One surplus score and one missing elsewhere would give all between to the wrong completions.
                checked_scores(answer.value, len(part), self.name)
                scores += answer.value
            else:
                self._report(part, answer, row=len(scores))
                scores += [None] * len(part)
        return scores

    def _report(self, part: Batch, answer: Answer, row: int) -> None:
        kind: FailureKind = "timeout" if answer.ended == "timeout" else "error"
        lines = str(answer.value).strip().splitlines() or ["no reason given"]
        details = str(answer.value) if answer.ended == "failed" else ""
        failure = Failure(self.name, kind, lines[-1], row_in_words(row, part.row(0)), details)
        part.failed(failure, None if answer.ended == "skipped" else self._replay)


def limited(reward: type | RewardFunction, seconds: float | None = None) -> object:
    """Give a reward of your own a hard limit: ``orms["mine"] = limited(MyReward, seconds=5)``.

    Args:
        reward: A class as ms-swift registers it, or a reward function.
        seconds: For one completion; by default ``SWIFT_GRPO_EXT_REWARD_TIMEOUT``, else 10.

    Returns:
        A class of the same name, or a callable, to be used in its place.
    """
    limit = seconds or current_settings().reward_timeout or 10.0
    if not isinstance(reward, type):
        return Limited(reward, limit, getattr(reward, "__name__", type(reward).__name__))

    def start(self: Limited, args: object = None, **kwargs: object) -> None:
        Limited.__init__(self, reward(args=args, **kwargs), limit, reward.__name__)

    return type(reward.__name__, (Limited,), {"__init__": start, "__doc__": reward.__doc__})


def _plugin_files() -> tuple[str, ...]:
    """The plugin files of this run; empty in a host that keeps no record of them, or without a host."""
    import sys

    return tuple(getattr(sys.modules.get("swift.utils"), "get_external_files", list)())


def _light(value: object) -> object:
    """The trainer's state without its history, which grows and which no reward needs; the rest as it is."""
    if hasattr(value, "log_history"):
        value = copy.copy(value)
        value.log_history = []
    return value
