"""What a reward function may return: one number or None for each completion."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from swift_grpo_ext.errors import RewardError

CONTRACT = "https://swift.readthedocs.io/en/latest/Instruction/GRPO/DeveloperGuide/reward_function.html"


@dataclass(frozen=True)
class Scores:
    """Scores of one reward function, one for each completion.

    Attributes:
        values: NaN for "not scored".
        overflows: How many were infinite, or integers too large for a float. They count as not scored: one
            of them in a group makes every advantage in it NaN, and the host drops such updates silently.
        not_finite: Places of those, and of NaN that was not given as None.
    """

    values: list[float]
    overflows: int
    not_finite: tuple[int, ...] = ()


def checked_scores(output: object, completions: int, name: str) -> Scores:
    """The scores of one reward function, NaN for "not scored"; a RewardError if they are not one for each.

    ms-swift broadcasts a list of length 1 to all completions, so a reward that returns the mean of its batch
    trains nothing, silently.
    """
    if isinstance(output, (str, bytes, dict)) or not isinstance(output, Iterable):
        raise RewardError(
            f"reward {name!r} returned {type(output).__name__}",
            fix=f"return a list with one number or None for each completion ({CONTRACT})",
        )
    scores = list(output)
    if len(scores) != completions:
        raise RewardError(
            f"reward {name!r} returned {len(scores)} scores for {completions} completions",
            fix=f"return one number or None for each completion, in their order ({CONTRACT})",
        )
    numbers = [_number(score, row, name) for row, score in enumerate(scores)]
    values = [number if math.isfinite(number) else math.nan for number in numbers]
    given = [row for row, score in enumerate(scores) if score is not None]
    return Scores(
        values,
        overflows=sum(map(math.isinf, numbers)),
        not_finite=tuple(row for row in given if not math.isfinite(numbers[row])),
    )


def _number(score: Any, row: int, name: str) -> float:
    if score is None:
        return math.nan
    try:
        return float(score)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several elements
        raise RewardError(
            f"reward {name!r} returned {str(score)[:60]!r} ({type(score).__name__})",
            where=f"completion {row} of the batch",
            fix=f"return a number, or None for a completion that cannot be scored ({CONTRACT})",
        ) from None
