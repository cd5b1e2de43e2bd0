"""Questions that are answered with yes or no."""

from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold.columns import gold_value
from swift_grpo_ext.rewards.gold.question import QUESTION, topic_of
from swift_grpo_ext.rewards.reading.answer import normalise_short
from swift_grpo_ext.rewards.reading.polarity import leading_polarity, stated_polarity

GOLD = ("solution", "answer")


def _gold_polarity(columns: Columns) -> bool:
    gold = gold_value(columns, GOLD)
    if isinstance(gold, bool) or gold in (0, 1, "0", "1"):
        return bool(int(gold))
    leading = leading_polarity(normalise_short(str(gold)).casefold().lstrip(" ([{*\"'“「:：\n"))
    if leading in ([], [None]):
        raise Unscorable(f"gold {gold!r:.80} is neither yes nor no")
    return leading == [True]


@reward(gold=GOLD, reads=QUESTION, gold_text=lambda row, **_: "yes" if _gold_polarity(row) else "no")
def yes_no(completion: str, columns: Columns) -> float:
    """The right polarity of a yes/no question: 1 if right, else 0.

    The first word of the answer decides (yes, no, true, false, and their counterparts in Chinese, Japanese,
    Korean, Arabic, Russian and a few European languages), or what it states: "so the answer is yes", "the
    statement is false", 答案是否. Without either, "there is no dog" is a no, "there is a dog" is a yes (but
    none if the row's question asks for something else: "it is red" for "is it green?"), any other negation
    ("it is not red") a no, and a double one a yes. Who is not sure says neither. Nor does who names but a
    synonym or an opposite of the question's word ("it is crimson", "it is blue" for "is it red?"): that takes
    knowledge of the world, so a plain statement earns only where it uses the question's words.

    Gold: ``solution`` (or ``answer``): such a word, a bool, or 0 and 1. The question is in ``question``,
        ``problem``, ``query`` or the last user turn of ``messages``, if anywhere.
    Raises:
        Unscorable: No gold, or a gold that is neither yes nor no.
    Rises with: Being right.
    Gaming:
        - "yes or no", "yes/no": the opposite word right after the first makes it no answer
          (test_hedged_yes_no).
        - A yes and a no in one answer: neither, unless the second is a conclusion or a correction
          (test_contradictions_are_no_answer).
    Source: Accuracy.
    Example:
        >>> get_reward("ext_yes_no")("There is no dog.", {"solution": "no"})
        1.0
    """
    gold = _gold_polarity(columns)
    return float(stated_polarity(completion, topic_of(columns)) is gold)
