"""Counting objects."""

from swift_grpo_ext.rewards.contract import Columns, Outcome, reward
from swift_grpo_ext.rewards.place import answer_of, read_gold
from swift_grpo_ext.rewards.values import count as counts

GOLD = ("solution", "count", "answer")


@reward(gold=GOLD, gold_text=lambda row, **_: str(read_gold(row, GOLD, counts.read)))
def count(completion: str, columns: Columns) -> Outcome:
    """The right number of objects: 1 if exact, else 0.

    Gold: ``solution`` (or ``count``, ``answer``): a count as answers write it, or a number.
    Raises:
        Unscorable: No gold, or one that is not a count.
    Rises with: Being right.
    Gaming:
        - Listing numbers, a range, a hedge: no count (test_several_numbers_are_no_count).
    Source: Accuracy.
    Example:
        >>> get_reward("ext_count")("Three dogs.", {"solution": 3})
        1.0
    """
    gold = read_gold(columns, GOLD, counts.read)
    predicted = counts.read(answer_of(completion, "figure"))
    return Outcome.of(float(predicted == gold), predicted, gold)


@reward(gold=GOLD, gold_text=lambda row, **_: str(read_gold(row, GOLD, counts.read)))
def count_shaped(completion: str, columns: Columns) -> Outcome:
    """Nearness to the right number of objects, 0..1: ``1 - min(1, |predicted - gold| / max(gold, 1))``.

    Gold: As for `ext_count`.
    Raises:
        Unscorable: As for `ext_count`.
    Rises with: Nearness to the gold count.
    Gaming:
        - Listing numbers, a range, a hedge: no count (test_several_numbers_are_no_count).
        - Always answering a typical count: earns its relative error, so weigh it below `ext_count`
          (test_a_constant_count_earns_less_than_counting).
    Source: Relative counting error.
    Example:
        >>> get_reward("ext_count_shaped")("<answer>3</answer>", {"solution": 4})
        0.75
    """
    gold = read_gold(columns, GOLD, counts.read)
    predicted = counts.read(answer_of(completion, "figure"))
    return Outcome.of(1.0 - min(1.0, abs(predicted - gold) / max(gold, 1)), predicted, gold)
