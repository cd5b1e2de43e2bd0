"""Counting objects."""

from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold.columns import gold_string
from swift_grpo_ext.rewards.gold.question import QUESTION, topic_of
from swift_grpo_ext.rewards.reading.counts import counts, stated_count

GOLD = ("solution", "count", "answer")


def _gold_count(columns: Columns) -> int:
    gold = gold_string(columns, GOLD)
    numbers = counts(gold)
    if len(numbers) != 1:
        raise Unscorable(f"gold {gold!r:.80} is not one whole number from 0")
    return numbers[0]


@reward(gold=GOLD, reads=QUESTION, gold_text=lambda row, **_: str(_gold_count(row)))
def count(completion: str, columns: Columns) -> float:
    """The right number of objects: 1 if exact, else 0.

    The whole number counts that the answer states, in digits or in words (English and Chinese): a total, what
    follows "the answer is", what is in bold, what "there are", else the last one; a number alone in the first
    line; in JSON the value under a key such as ``count``. Of "5 dogs and 3 cats", "3 on the left, 5 on the
    right" the part counts that names most of what the row's question names (``question``, ``problem``,
    ``query``, or the last user turn of ``messages``), else the first. "None" is 0. A range or a choice ("6 to
    7", "4 or 5"), a bound ("more than 7"), what is only near ("almost 7"), a denial ("not 7"), a question,
    what others say ("you said 7") and a refusal are no answer; times and ordinals are no counts.

    Gold: ``solution`` (or ``count``, ``answer``): a whole number from 0, as a number or in text.
    Raises:
        Unscorable: No gold, or one that does not hold exactly one whole number.
    Rises with: Being right.
    Gaming:
        - Listing numbers: only the last one counts (test_a_list_of_numbers_is_its_last).
    Source: Accuracy.
    Example:
        >>> get_reward("ext_count")("There are three dogs.", {"solution": 3})
        1.0
    """
    gold = _gold_count(columns)
    return float(stated_count(completion, topic_of(columns)) == gold)


@reward(gold=GOLD, reads=QUESTION, gold_text=lambda row, **_: str(_gold_count(row)))
def count_shaped(completion: str, columns: Columns) -> float:
    """Nearness to the right number of objects, 0..1: ``1 - min(1, |predicted - gold| / max(gold, 1))``.

    Gold: As for `ext_count`.
    Raises:
        Unscorable: As for `ext_count`.
    Rises with: Nearness to the gold count.
    Gaming:
        - Listing numbers: only the last one counts (test_a_list_of_numbers_is_its_last).
        - Always answering a typical count: earns its relative error, so weigh it below `ext_count`
          (test_a_constant_count_earns_less_than_counting).
    Source: Relative counting error.
    Example:
        >>> get_reward("ext_count_shaped")("<answer>3</answer>", {"solution": 4})
        0.75
    """
    gold = _gold_count(columns)
    predicted = stated_count(completion, topic_of(columns))
    return 0.0 if predicted is None else 1.0 - min(1.0, abs(predicted - gold) / max(gold, 1))
