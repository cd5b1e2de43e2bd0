"""A batch of completions, and what a reward may return for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.contract import Columns, Outcome

CONTRACT = "https://swift.readthedocs.io/en/latest/Instruction/GRPO/DeveloperGuide/reward_function.html"
NOT_FINITE = "the score is NaN or infinite"  # the reason for a missing one


class BrokenContractError(RewardError):
    """A reward returned what nobody can read as scores: the run ends at once."""


def outcomes_of(output: object, completions: int, name: str) -> list[Outcome]:
    """One outcome for each completion; ms-swift would broadcast a single score to all, silently.

    A score that is not finite would make every advantage of its group NaN, so it becomes None with a reason.

    Raises:
        BrokenContractError: The output is not a list with one number or None for each completion.
    """
    listed = isinstance(output, Iterable) and not isinstance(output, (str, bytes, dict))
    scores = list(output) if listed else []  # type: ignore[call-overload]
    if not listed or len(scores) != completions:
        what = f"{len(scores)} scores for {completions} completions" if listed else type(output).__name__
        fix = f"return a list with one number or None for each completion, in their order ({CONTRACT})"
        raise BrokenContractError(f"reward {name!r} returned {what}", fix=fix)
    return [_outcome(score, row, name) for row, score in enumerate(scores)]


def _outcome(score: Outcome | SupportsFloat | None, row: int, name: str) -> Outcome:
    if score is None or isinstance(score, Outcome):
        return score or Outcome(None)
    try:
        value = float(score)
    except OverflowError:
        value = math.inf
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several elements
        raise BrokenContractError(
            f"reward {name!r} returned {str(score)[:60]!r} ({type(score).__name__})",
            where=f"completion {row} of the batch",
            fix=f"return a number, or None for a completion that cannot be scored ({CONTRACT})",
        ) from None
    return Outcome(value) if math.isfinite(value) else Outcome(None, NOT_FINITE)


@dataclass(frozen=True)
class Batch:
    """Completions and everything that came with them."""

    completions: Sequence[str]
    columns: Mapping[str, Sequence[Any]]  # column name to one value per completion
    shared: Mapping[str, Any]  # what does not belong to single completions, such as ``trainer_state``

    @classmethod
    def of(cls, completions: Sequence[str], arguments: Mapping[str, object]) -> Batch:
        """Sort ms-swift's keyword arguments into columns and the rest."""
        size = len(completions)
        columns = {
            name: value
            for name, value in arguments.items()
            if isinstance(value, (list, tuple)) and len(value) == size
        }
        shared = {name: value for name, value in arguments.items() if name not in columns}
        return cls(completions, columns, shared)

    def row(self, index: int) -> Columns:
        """The columns of one completion."""
        return {name: values[index] for name, values in self.columns.items()}
