"""Counting objects."""

import re
import unicodedata

from swift_grpo_ext.rewards.answer import short_answer
from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold import gold_string
from swift_grpo_ext.rewards.statement import after_label
from swift_grpo_ext.rewards.units import with_digits

GOLD = ("solution", "count", "answer")
_N = r"(?<![A-Za-z0-9_.,-])(?:\d{1,3}(?:,\d{3}){1,5}|\d{1,15})(?:\.0{1,9})?(?!\d|[.,]\d)"
_COUNT = re.compile(_N)
_NOTHING = re.compile(
    r"\b(?:none|no|nobody|nothing|not any|n't any)\b|没有|沒有|不存在|无(?!法)|ありません|いません|없습니다"
)
_SINGLE = re.compile(r"\b(?:an? |the |only )?(?:single|solitary|lone)\b")
_NOT_ONE = re.compile(
    r"(?:\bnot|n['’]t)(?: \w{1,10}){0,2} (?:a single|one|an?y?)\b|(?:一|半)\w{0,4}(?:也|都)(?:没|沒|不|无)有?"
)
_PARTS = re.compile(
    r"(?:[^\W\d]|\s){0,40}(?:[:：(（—–](?!\s?(?:or|maybe|或|perhaps)\b)"
    r"|[,，]?\s?(?:including|consisting|made up|其中|包括|(?:\d{1,4} )?of (?:which|them|these)))"
)
_COUPLE = re.compile(r"\b(?:a )?(?:couple|pair)(?= of)")
_HEDGED = re.compile(rf"({_N})\s*(?:or|to|-|–|~|至|到|或者?)\s*(\d{{1,15}})(?![\d.])")
_TOTALS = (
    re.compile(rf"({_N})(?:(?!{_N})[^\n.]){{0,60}}?\b(?:in total|altogether|in all|overall)\b"),
    re.compile(rf"(?<!in )\b(?:total|overall|altogether|in all|sum)\b[^\d\n.]{{0,40}}?({_N})"),
    re.compile(rf"(?:一共|总共|共计|合计|总计|总数|共|全部で|合計|총)[^\d\n。,]{{0,10}}({_N})"),
    re.compile(rf"[=≈]\s*\**\s?({_N})\W{{0,6}}\Z"),
)
_BOLD = re.compile(rf"\*\*[^*\d\n]{{0,40}}({_N})[^*\d\n]{{0,40}}\*\*")
_EXISTS = re.compile(
    r"\bthere(?:'s| is| are| were| was| appear| seem)|\bi (?:can )?(?:see|count|find|counted|found"
    r"|identified|detect)"
    r"|\b(?:image|picture|photo|scene) (?:shows|contains|has|depicts)|有|见到|看到|있습니다|あります|います"
)
_SENTENCE = re.compile(r"[.!?。！？;；\n]+(?=\s|\Z|[^\d\s])")


def _plain(text: str) -> str:
    text = _NOT_ONE.sub(" no ", unicodedata.normalize("NFKC", text).casefold())
    text = _COUPLE.sub("2", _SINGLE.sub("1", re.sub(r"\bno[ -]one\b", "nobody", text)))
    return with_digits(text, alone=True)


def counts(text: str) -> list[int]:
    """All whole numbers from 0 of a text, in digits or words; 0 where it says but "no"."""
    return _counts(_plain(text))


def _counts(plain: str) -> list[int]:
    found = [_value(match[0]) for match in _COUNT.finditer(plain)]
    return found or [0] * len(_NOTHING.findall(plain)[:1])


def _value(digits: str) -> int:
    return int(digits.partition(".")[0].replace(",", ""))


def stated_count(text: str) -> int | None:
    """The count that a text states; None if it states none, or more than one ("4 or 5").

    In turn: a total, what follows "the answer is", what is in bold, what "there are", the last number.
    """
    plain = _plain(text)
    if any(_value(match[1]) != _value(match[2]) for match in _HEDGED.finditer(plain)):
        return None
    for total in (*_TOTALS, _BOLD):
        found = [_value(match[1]) for match in total.finditer(plain)]
        if found and (total is not _BOLD or len(set(found)) == 1):
            return found[-1]
    first = _COUNT.match(plain)
    if first and _PARTS.match(plain, first.end()):
        return _value(first[0])
    stated = _counts(_SENTENCE.split(after_label(plain), maxsplit=1)[0]) or _existing(plain) or _counts(plain)
    return stated[-1] if stated else None


def _existing(plain: str) -> list[int]:
    """The number of the last sentence that says how many there are, and holds no other but its parts."""
    found: list[int] = []
    for part in filter(_EXISTS.search, _SENTENCE.split(plain)):
        first, *others = [*_COUNT.finditer(part), None][:2]
        if first and (others == [None] or _PARTS.match(part, first.end())):
            found.append(_value(first[0]))
    return found[-1:]


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
        >>> from swift_grpo_ext import get_reward
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
        >>> from swift_grpo_ext import get_reward
        >>> get_reward("ext_count_shaped")("<answer>3</answer>", {"solution": 4})
        0.75
    """
    gold = _gold_count(columns)
    predicted = stated_count(short_answer(completion) or "")
    return 0.0 if predicted is None else 1.0 - min(1.0, abs(predicted - gold) / max(gold, 1))
