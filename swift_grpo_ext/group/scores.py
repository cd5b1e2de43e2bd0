"""What a reward function may return: one number or None for each completion."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from swift_grpo_ext.errors import RewardError


def checked_scores(output: Any, completions: int, name: str) -> list[float]:
    """The scores of one reward function, NaN for "not scored".

    The host broadcasts a list of length 1 to all completions, so a reward that returns the mean of its batch
    trains nothing, silently.

    Args:
        output: What the function returned.
        completions: How many completions it was given.
        name: The function's name, for the message.

    Returns:
        One float for each completion; None, NaN, infinities and integers too large for a float become NaN.

    Raises:
        RewardError: Not a sequence, another length, or an element that is no number.
    """
    if isinstance(output, (str, bytes, dict)) or not isinstance(output, Iterable):
        raise RewardError(
            f"reward {name!r} returned {type(output).__name__}",
            mend="return a list with one number or None for each completion",
        )
    scores = list(output)
    if len(scores) != completions:
        raise RewardError(
            f"reward {name!r} returned {len(scores)} scores for {completions} completions",
            mend="return one number or None for each completion, in their order",
        )
    return [_number(score, row, name) for row, score in enumerate(scores)]


def _number(score: Any, row: int, name: str) -> float:
    if score is None:
        return math.nan
    try:
        number = float(score)
    except OverflowError:
        return math.nan
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several elements
        raise RewardError(
            f"reward {name!r} returned {str(score)[:60]!r} ({type(score).__name__})",
            where=f"completion {row} of the batch",
            mend="return a number, or None for a completion that cannot be scored",
        ) from None
    return number if math.isfinite(number) else math.nan
