"""A batch of completions, and what a reward may return for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.contract import Columns, Outcome

CONTRACT = "https://swift.readthedocs.io/en/latest/Instruction/GRPO/DeveloperGuide/reward_function.html"
# Why there is no score: it is no finite number, or too large.
INFINITE = "infinite"
NOT_A_NUMBER = "not a number"


def outcomes_of(output: object, completions: int, name: str) -> list[Outcome]:
    """One outcome for each completion; ms-swift would broadcast a single score to all, silently.

    A score that is not finite would make every advantage of its group NaN, and is none; the reason says so.

    Raises:
        RewardError: The output is not a list with one number or None for each completion.
    """
    returned = f"reward {name!r} returned"
    fix = "return {} number or None for each completion{} (" + CONTRACT + ")"
    if isinstance(output, (str, bytes, dict)) or not isinstance(output, Iterable):
        raise RewardError(f"{returned} {type(output).__name__}", fix=fix.format("a list with one", ""))
    scores = list(output)
    if len(scores) != completions:
        fix = fix.format("one", ", in their order")
        raise RewardError(f"{returned} {len(scores)} scores for {completions} completions", fix=fix)
    return [_outcome(score, row, returned) for row, score in enumerate(scores)]


def _outcome(score: Outcome | SupportsFloat | None, row: int, returned: str) -> Outcome:
    if score is None or isinstance(score, Outcome):
        return score or Outcome(None)
    try:
        value = float(score)
    except OverflowError:
        value = math.inf
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several elements
        raise RewardError(
            f"{returned} {str(score)[:60]!r} ({type(score).__name__})",
            where=f"completion {row} of the batch",
            fix=f"return a number, or None for a completion that cannot be scored ({CONTRACT})",
        ) from None
    if math.isfinite(value):
        return Outcome(value)
    return Outcome(None, NOT_A_NUMBER if math.isnan(value) else INFINITE)


@dataclass(frozen=True)
class Batch:
    """Completions and everything that came with them."""

    completions: Sequence[str]
    columns: Mapping[str, Sequence[Any]]  # column name to one value per completion
    shared: Mapping[str, Any]  # what does not belong to single completions, such as ``trainer_state``
    places: Sequence[int]  # of its completions in the batch that they were selected from

    @classmethod
    def of(cls, completions: Sequence[str], arguments: Mapping[str, object]) -> Batch:
        """Sort ms-swift's keyword arguments into columns and the rest."""
        size = len(completions)
        columns = {
            name: value
            for name, value in arguments.items()
            if isinstance(value, (list, tuple)) and len(value) == size
        }
        shared = {name: arguments[name] for name in arguments if name not in columns}
        return cls(completions, columns, shared, range(size))

    def __len__(self) -> int:
        return len(self.completions)

    def row(self, index: int) -> Columns:
        """The columns of one completion."""
        return {name: values[index] for name, values in self.columns.items()}

    def select(self, indices: Sequence[int]) -> Batch:
        """The batch of these completions."""
        columns = {name: [values[index] for index in indices] for name, values in self.columns.items()}
        chosen = [self.completions[index] for index in indices]
        return Batch(chosen, columns, self.shared, [self.places[index] for index in indices])
