"""Questions that are answered with yes or no."""

from swift_grpo_ext.rewards.contract import Columns, Outcome, reward
from swift_grpo_ext.rewards.place import answer_of, read_gold
from swift_grpo_ext.rewards.values import yes_no as polarity

GOLD = ("solution", "answer")
_WORDS = {True: "yes", False: "no"}


def _gold(columns: Columns) -> bool:
    return read_gold(columns, GOLD, _read_gold)


def _read_gold(text: str) -> bool:
    return text == "1" if text in ("0", "1") else polarity.read(text)


@reward(gold=GOLD, gold_text=lambda row, **_: _WORDS[_gold(row)])
def yes_no(completion: str, columns: Columns) -> Outcome:
    """The right answer to a yes/no question: 1 if right, else 0.

    Gold: ``solution`` (or ``answer``): yes or no as answers write them, a bool, or 0 and 1.
    Raises:
        Unscorable: No gold, or a gold that is neither yes nor no.
    Rises with: Being right.
    Gaming:
        - "yes or no", "yes, but no": neither (test_hedged_yes_no).
        - "There is not enough information": neither, so no refusal is worth a no
          (test_a_refusal_is_no_answer).
    Source: Accuracy.
    Example:
        >>> get_reward("ext_yes_no")("No, there is no dog.", {"solution": "no"})
        1.0
    """
    gold = _gold(columns)
    predicted = polarity.read(answer_of(completion, "leading"))
    return Outcome.of(float(predicted is gold), _WORDS[predicted], _WORDS[gold])
