"""Counting objects."""

import re
import unicodedata
from collections.abc import Iterable

from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold.columns import gold_string
from swift_grpo_ext.rewards.reading.answer import short_answer
from swift_grpo_ext.rewards.reading.numbers import Place, Quantity, quantities, stated_quantity
from swift_grpo_ext.rewards.reading.spelled_numbers import with_digits

GOLD = ("solution", "count", "answer")
_NOTHING = re.compile(
    r"(?<![a-z])(?:none|no|nobody|nothing|not any|n't any)(?![a-z])|没有|沒有|不存在|无(?!法)"
    r"|ありません|いません|없습니다"
)
_SINGLE = re.compile(r"\b(?:an? |the |only )?(?:single|solitary|lone)\b")
_NOT_ONE = re.compile(
    r"(?:\bnot|n['’]t)(?: \w{1,10}){0,2} (?:a single|one|an?y?)\b|(?:一|半)\w{0,4}(?:也|都)(?:没|沒|不|无)有?"
)
_COUPLE = re.compile(r"\b(?:a )?(?:couple|pair)(?= of)")
_TOTALS: tuple[Place, ...] = tuple(
    (re.compile(before), re.compile(behind))
    for before, behind in (
        ("", r"[^\d\n.]{0,60}?\b(?:in total|altogether|in all|overall)\b"),
        (r"(?:(?<!in )\b(?:total|overall|altogether|in all|sum)\b[^\d\n.]{0,40})\Z", ""),
        (r"(?:一共|总共|共计|合计|总计|总数|共|全部で|合計|총)[^\d\n。,]{0,10}\Z", ""),
        (r"[=≈]\s*\**\s?\Z", r"\W{0,6}\Z"),
        (  # a number whose parts follow
            r"(?:\A|\bthere(?:'s| is| are| were| was| appear| seem)|\b(?:see|count|find|counted|found"
            r"|identified|detect|shows|contains|has|depicts)|有|见到|看到|있습니다|あります|います)[^\d.,:]{0,24}\Z",
            r"(?:[^\W\d]|\s){0,40}(?:[:：(（—–](?!\s?(?:or|maybe|或|perhaps)\b)"
            r"|[,，]?\s?(?:including|consisting|made up|其中|包括|(?:\d{1,4} )?of (?:which|them|these)))",
        ),
    )
)


def _plain(text: str) -> str:
    text = _NOT_ONE.sub(" no ", unicodedata.normalize("NFKC", text).casefold())
    text = _COUPLE.sub("2", _SINGLE.sub("1", re.sub(r"\bno[ -]one\b", "nobody", text)))
    text = with_digits(text.replace("/", ", "), alone=True)
    return text if re.search(r"\d", text) else _NOTHING.sub("0", text, count=1)


def _whole(found: Iterable[Quantity | None]) -> list[int]:
    return [int(one.written) for one in found if one and one.written >= 0 and one.written.is_integer()]


def counts(text: str) -> list[int]:
    """All whole numbers from 0 of a text, in digits or words; 0 where it says but "no"."""
    return _whole(quantities(_plain(text)))


def stated_count(text: str) -> int | None:
    """The count that a text states: a total, or what `stated_quantity` finds; else None."""
    return next(iter(_whole([stated_quantity(_plain(text), _TOTALS)])), None)


def _gold_count(columns: Columns) -> int:
    gold = gold_string(columns, GOLD)
    found = counts(gold)
    if len(found) != 1:
        raise Unscorable(f"gold {gold!r:.80} is not one whole number from 0")
    return found[0]


@reward(gold=GOLD, gold_text=lambda row, **_: str(_gold_count(row)))
def count(completion: str, columns: Columns) -> float:
    """The right number of objects: 1 if exact, else 0.

    The whole number counts that the answer states, in digits or in words (English and Chinese): a total, what
    follows "the answer is", what is in bold, what "there are", else the last one. "None" is 0, "4 or 5" is no
    answer.

    Gold: ``solution`` (or ``count``, ``answer``): a whole number from 0, as a number or in text.
    None: No gold, or one that does not hold exactly one whole number.
    Rises with: Being right.
    Gaming:
        - Listing numbers: only the last one counts (test_a_list_of_numbers_is_its_last).
    Source: Accuracy.
    Example:
        >>> get_reward("ext_count")("There are three dogs.", {"solution": 3})
        1.0
    """
    gold = _gold_count(columns)
    return float(stated_count(short_answer(completion) or "") == gold)


@reward(gold=GOLD, gold_text=lambda row, **_: str(_gold_count(row)))
def count_shaped(completion: str, columns: Columns) -> float:
    """Nearness to the right number of objects, 0..1: ``1 - min(1, |predicted - gold| / max(gold, 1))``.

    Gold: As for `ext_count`.
    None: As for `ext_count`.
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
    predicted = stated_count(short_answer(completion) or "")
    return 0.0 if predicted is None else 1.0 - min(1.0, abs(predicted - gold) / max(gold, 1))
