"""Counting objects."""

from __future__ import annotations

from swift_grpo_ext.rewards.answer import short_answer
from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.counts import counts, stated_count
from swift_grpo_ext.rewards.gold import gold_string

GOLD = ("solution", "count", "answer")


def _gold_count(columns: Columns) -> int:
    gold = gold_string(columns, GOLD)
    found = counts(gold)
    if len(found) != 1:
        raise Unscorable(f"gold {gold!r:.80} is not one whole number from 0")
    return found[0]


def _gold_count_text(columns: Columns, **_: object) -> str:
    return str(_gold_count(columns))


def _predicted_count(completion: str) -> int | None:
    answer = short_answer(completion)
    return stated_count(answer) if answer else None


@reward(gold=GOLD, gold_text=_gold_count_text)
def count(completion: str, columns: Columns) -> float:
    """The right number of objects: 1 if exact, else 0.

    The whole number counts that the answer states, in digits or in words (English and Chinese): a total, what
    follows "the answer is", what is in bold, what "there are", else the last one. "None" is 0, "4 or 5" is no
    answer.

    Gold:
        ``solution`` (or ``count``, ``answer``): a whole number from 0, as a number or in text.

    None:
        No gold, or one that does not hold exactly one whole number.

    Rises with:
        Being right.

    Gaming:
        - Listing numbers: only the last one counts (test_a_list_of_numbers_is_its_last).

    Source:
        Accuracy.

    Example:
        >>> from swift_grpo_ext import get_reward
        >>> get_reward("ext_count")("There are three dogs.", {"solution": 3})
        1.0
    """
    gold = _gold_count(columns)
    return float(_predicted_count(completion) == gold)


@reward(gold=GOLD, gold_text=_gold_count_text)
def count_shaped(completion: str, columns: Columns) -> float:
    """Nearness to the right number of objects, 0..1: ``1 - min(1, |predicted - gold| / max(gold, 1))``.

    Gold:
        As for `ext_count`.

    None:
        As for `ext_count`.

    Rises with:
        Nearness to the gold count.

    Gaming:
        - Listing numbers: only the last one counts (test_a_list_of_numbers_is_its_last).
        - Always answering a typical count: earns its relative error, so weigh it below `ext_count`
          (test_a_constant_count_earns_less_than_counting).

    Source:
        Relative counting error.

    Example:
        >>> from swift_grpo_ext import get_reward
        >>> get_reward("ext_count_shaped")("<answer>3</answer>", {"solution": 4})
        0.75
    """
    gold = _gold_count(columns)
    predicted = _predicted_count(completion)
    return 0.0 if predicted is None else 1.0 - min(1.0, abs(predicted - gold) / max(gold, 1))
