"""The first pass of each kind, on either engine: compared with ms-swift's own, and dropped if wrong.

A mismatch, or a second exception, turns off the feature without which the pass is right, or all that change
a forward. A first exception may come from one odd micro-batch: it uses ms-swift's forward, the next is tried.
Every rank comes to the same end.
"""

from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from swift_grpo_ext.errors import in_a_line
from swift_grpo_ext.features import Features
from swift_grpo_ext.ms_swift.shared import get_logger
from swift_grpo_ext.trainer.distributed import agreed_max, all_ranks_are_here

logger = get_logger()
FAILED = "self-check failed"
Result = TypeVar("Result")
Made = TypeVar("Made", covariant=True)
# How a trial ended, the worst of all ranks.
_RIGHT, _NO_ROOM, _RAISED, _WRONG = range(4)


class Attempt(NamedTuple, Generic[Made]):
    """A pass that is yet to be trusted."""

    check: Callable[[], str]  # why its scores are wrong; empty if they are right
    run: Callable[[], Made]
    compares: bool = True  # there is something to compare


class _Trial(NamedTuple, Generic[Result]):
    end: int
    result: Result | None
    problem: str  # only on ranks that have one


class FirstPasses:
    """The kinds of passes that are trusted.

    Args:
        device: Of the ranks' agreement.
        on: True if passes are checked.
        waits: Ranks wait for each other inside the model (ZeRO-3, FSDP, tensor parallelism): one that raises
            alone leaves the others waiting, so its error ends the run.
        halve: Makes check and pass take less memory, where they have run out of it.
    """

    def __init__(
        self, device: Any, on: bool, waits: bool, halve: Callable[[Exception | None], None] | None = None
    ) -> None:
        self._device = device
        self._on = on
        self._waits = waits
        self._halve = halve
        self._trusted: set[Hashable] = set()
        self._raised = False  # the pass before this one raised

    def is_due(self, kind: Hashable) -> bool:
        """True if passes are checked and this kind is not trusted yet."""
        return self._on and kind not in self._trusted

    def run(
        self, kind: Hashable, features: Features, attempt: Callable[[Features], Attempt[Result]]
    ) -> tuple[Result | None, Features]:
        """Make a pass of a kind that is due, or None for ms-swift's forward; and the features from now on."""
        trial = self._tried(kind, attempt(features))
        if trial.end == _RIGHT:
            self._raised = False
            return trial.result, features
        problem = trial.problem or "on another rank"
        if trial.end == _RAISED and not self._raised:
            self._raised = True
            logger.warning(
                f"swift-grpo-ext: the first pass raised ({problem}): this micro-batch uses ms-swift's "
                "forward, the next one is tried"
            )
            return None, features
        logger.warning(f"swift-grpo-ext: {FAILED}: {problem}")
        for name in features.of_forward:
            fewer = features.without(**{name: FAILED})
            if fewer.stock_forward:
                break
            again = self._tried(kind, attempt(fewer))
            if again.end == _RIGHT:
                return again.result, fewer
        return None, features.without_forward(FAILED)

    def _tried(self, kind: Hashable, attempt: Attempt[Result]) -> _Trial[Result]:
        """Check a pass and make it, until either end is clear, the same on all ranks."""
        checked = self._agreed(attempt.check)
        if checked.end != _RIGHT:
            return _Trial(checked.end, None, checked.problem)
        made = self._agreed(lambda: "", attempt.run)
        if made.end == _RIGHT and agreed_max(int(attempt.compares), self._device):
            self._trusted.add(kind)
        return made

    def _agreed(self, check: Callable[[], str], run: Callable[[], Any] = lambda: None) -> _Trial[Any]:
        """The end of a check or of a pass, which are made again in halves where memory has run out."""
        while True:
            end, result, problem, no_room = _RIGHT, None, "", None
            try:
                problem = check()
                result = run()
                end = _WRONG if problem else _RIGHT
            except Exception as error:
                if self._waits and not all_ranks_are_here("first pass"):
                    raise
                end = _NO_ROOM if self._halve and isinstance(error, torch.OutOfMemoryError) else _RAISED
                problem = in_a_line(error)
                no_room = error.with_traceback(None)  # whose frames hold the graph
            worst = agreed_max(end, self._device)
            if worst != _NO_ROOM or self._halve is None:
                return _Trial(worst, result, problem if end > _NO_ROOM else "")
            del result
            self._halve(no_room if end == _NO_ROOM else None)
