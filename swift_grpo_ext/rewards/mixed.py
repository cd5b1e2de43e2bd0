"""One reward for rows of several kinds: the gold says which comparison is right for it."""

import re
import string
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from swift_grpo_ext.rewards.choice import choice
from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold.columns import gold_strings
from swift_grpo_ext.rewards.gold.question import QUESTION
from swift_grpo_ext.rewards.math_equality import math
from swift_grpo_ext.rewards.numeric import numeric
from swift_grpo_ext.rewards.reading.answer import extract_answer, readings
from swift_grpo_ext.rewards.reading.assertion import asserted
from swift_grpo_ext.rewards.reading.numbers import quantities
from swift_grpo_ext.rewards.reading.polarity import leading_polarity
from swift_grpo_ext.rewards.reading.tokens import normalise_text
from swift_grpo_ext.rewards.yes_no import yes_no

GOLD = ("solution", "answers", "answer")
Kind: TypeAlias = Literal["choice", "yes or no", "number", "mathematics", "text"]

# "B", "(B)"
_LETTER = re.compile(r"\(?[A-J]\)?\.?")
# "$1,200", "12.5 %", "5 km"
_NUMBER = re.compile(r"[-+]?[$€£¥]?\s?\d[\d.,]*\s?(?:%|[^\W\d_]{1,12})?")
# "\\frac{1}{2}", "x^2 + 1", "x = 3"
_FORMULA = re.compile(r"[\\^_=√π]|\d\s?[-+*/]\s?[\da-z(]")
_ARTICLES = re.compile(r"\b(?:an?|the|el|la|los|las|les?)\b")
_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "，。！？；：、“”‘’（）《》", " "))


def kind_of(gold: str, has_options: bool = False) -> Kind:
    """What a gold is: a letter (or anything beside options), yes or no, a number, a formula, or text."""
    text = gold.strip()
    if has_options or _LETTER.fullmatch(text):
        return "choice"
    if len(text) <= 12 and leading_polarity(text.casefold()) in ([True], [False]):
        return "yes or no"
    if _FORMULA.search(text):
        return "mathematics"
    if _NUMBER.fullmatch(text) and len(quantities(text)) == 1:
        return "number"
    return "mathematics" if "$" in text else "text"


def plain_text(text: str) -> str:
    """The text without case, punctuation, articles and surplus white space."""
    bare = normalise_text(text, True)
    return " ".join(_ARTICLES.sub(" ", bare).translate(_PUNCTUATION).split()) or bare


@reward(
    gold=GOLD,
    reads=("options", "choices", *QUESTION),
    cost="process",
    gold_text=lambda row, **_: gold_strings(row, GOLD)[0],
)
def answer(
    completion: str, columns: Columns, *, relative_tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.0
) -> float:
    r"""The right answer, whatever its kind: 1 if right, else 0. For data sets that mix kinds of questions.

    A gold that is a letter, or whose row lists options, is compared as `ext_choice` does; yes or no as
    `ext_yes_no`; one number, with a unit or without, as `ext_numeric`; a formula as `ext_math`; and any other
    text must be the answer, or what a short sentence ends in ("It is signed by Ann Lee."), without regard to
    case, punctuation, articles and white space. Of several golds one must be met.

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
        ...     ("So it is B.", {"solution": "B"}), ("1200", {"solution": "1,200"}), ("Eiffel Tower", {
        ...     "solution": ["the Eiffel tower", "tour Eiffel"]}))]
        [1.0, 1.0, 1.0]
    """
    golds = gold_strings(columns, GOLD)
    has_options = any(columns.get(name) is not None for name in ("options", "choices"))
    unread = ""
    for gold in golds:
        row = {**columns, "solution": gold}
        kind = kind_of(gold, has_options)
        try:
            if _is_right(kind, completion, row, gold, relative_tolerance):
                return 1.0
        except Unscorable as fault:
            unread = str(fault)
    if unread and len(golds) == 1:
        raise Unscorable(unread)
    return 0.0


def _is_right(kind: Kind, completion: str, row: Columns, gold: str, tolerance: float) -> bool:
    if kind == "text":
        wanted = plain_text(gold)
        answer = extract_answer(completion) or ""
        if plain_text(answer) == wanted and ("?" in gold or not answer.endswith(("?", "？"))):
            return True
        return any(plain_text(text) == wanted for text in readings(asserted(answer), gold))
    if kind == "number":
        return bool(numeric.function(completion, row, relative_tolerance=tolerance))
    of_kind = {"choice": choice, "yes or no": yes_no, "mathematics": math}[kind]
    return of_kind.function(completion, row) == 1.0
