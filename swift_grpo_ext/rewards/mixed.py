"""One reward for rows of several kinds: the gold says which comparison is right for it."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from swift_grpo_ext.rewards.choice import choice
from swift_grpo_ext.rewards.contract import Columns, Outcome, Unread, reward
from swift_grpo_ext.rewards.gold.columns import gold_strings
from swift_grpo_ext.rewards.math_equality import math
from swift_grpo_ext.rewards.numeric import numeric
from swift_grpo_ext.rewards.place import answer_of, bare_gold
from swift_grpo_ext.rewards.values import mathematics, number
from swift_grpo_ext.rewards.values import yes_no as polarity
from swift_grpo_ext.rewards.values.text import plain
from swift_grpo_ext.rewards.yes_no import yes_no

GOLD = ("solution", "answers", "answer")
Kind: TypeAlias = Literal["choice", "yes or no", "number", "mathematics", "text"]

# "B", "(B)"
_LETTER = re.compile(r"\(?[A-J]\)?\.?")
# "\\frac{1}{2}", "x^2 + 1", "x = 3", "2x + 3"
_FORMULA = re.compile(
    r"\\[a-zA-Z]|[\^=√π]|(?<![A-Za-z])\d{0,6}[a-z]\s?[+*/]\s?\d|\d\s?[+*]\s?\d{0,6}[a-z](?![A-Za-z])"
)
# A counted noun: "5 dogs" is a text, "5 million" is a number.
_NOUN = re.compile(r"(?!(?:thousand|million|billion|trillion|percent)s?\b)\b[^\W\d_]{3,}")
_OF_KIND = {"choice": choice, "yes or no": yes_no, "number": numeric, "mathematics": math}


def kind_of(gold: str, has_options: bool = False) -> Kind:
    """The kind of a gold: an option; yes or no, a number or a formula, if it is nothing else; or a text."""
    text = bare_gold(gold)
    if has_options or _LETTER.fullmatch(text):
        return "choice"
    if _is(polarity.read, text) and len(text) <= 6:
        return "yes or no"
    if (
        _is(number.read, text)
        and re.match(r"(?!\d{3}0s\Z).*\d", text)  # the 1990s are not seconds
        and (number.read(text).unit.dimension or not _NOUN.search(text))
    ):
        return "number"
    return "mathematics" if _FORMULA.search(gold) and _is(mathematics.read, text) else "text"


def _is(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except Unread:
        return False
    return True


@reward(
    gold=GOLD,
    reads=("options", "choices"),
    cost="process",
)
def answer(
    completion: str, columns: Columns, *, relative_tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.0
) -> Outcome:
    r"""The right answer, whatever its kind: 1 if right, else 0. For data sets that mix kinds of questions.

    A gold that is a letter, or whose row lists options, is compared as `ext_choice` does. One that is only
    yes or no is compared as `ext_yes_no` does, only a number, with a unit or without, as `ext_numeric`
    does, and only a formula as `ext_math` does: "right lung", "no parking", "$70,000-$140,000" are texts.
    Any other text must be the answer, without regard to case, punctuation, articles and white space. Of
    several golds one must be met.

    Args:
        relative_tolerance: Allowed error of a number as a fraction of the gold. 0 for exact.
    Gold: ``solution`` (or ``answers``, ``answer``): one right answer, or a list of them; ``options`` (or
        ``choices``) as for `ext_choice`.
    Raises:
        Unscorable: No gold, or one that the reward of its kind cannot read.
    Rises with: Being right.
    Gaming:
        - A long text that holds the answer somewhere: the whole answer must be the gold
          (test_text_must_be_the_whole_answer).
        - Naming several options, numbers or both polarities: none, as in the rewards of these kinds
          (test_several_answers_are_none).
    Source: Accuracy; text as the exact match of SQuAD (arXiv 1606.05250).
    Example:
        >>> [get_reward("ext_answer")(*case) for case in (
        ...     ("The answer is B.", {"solution": "B"}), ("1200", {"solution": "1,200"}), ("Eiffel Tower", {
        ...     "solution": ["the Eiffel tower", "tour Eiffel"]}))]
        [1.0, 1.0, 1.0]
    """
    golds = gold_strings(columns, GOLD)
    has_options = any(columns.get(name) is not None for name in ("options", "choices"))
    outcomes = [_against(gold, completion, columns, has_options, relative_tolerance) for gold in golds]
    best = max(outcomes, key=lambda outcome: -1.0 if outcome.score is None else outcome.score)
    if best.score is None and len(golds) > 1:
        return Outcome(0.0, best.reason)
    return best


def _against(gold: str, completion: str, columns: Columns, has_options: bool, tolerance: float) -> Outcome:
    kind = kind_of(gold, has_options)
    row = {**columns, "solution": gold}
    if kind == "text":
        answer = answer_of(completion)
        return Outcome.of(float(plain(answer) == plain(bare_gold(gold))), answer, gold)
    names = ("relative_tolerance", "whole_tolerance") if kind == "number" else ()
    parameters: dict[str, Any] = dict.fromkeys(names, tolerance)
    return _OF_KIND[kind].outcome(completion, row, **parameters)
