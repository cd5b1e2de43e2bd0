"""Counting objects."""

import re
import unicodedata
from collections.abc import Iterable
from itertools import zip_longest

from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold.columns import gold_string
from swift_grpo_ext.rewards.gold.question import QUESTION, asked_for
from swift_grpo_ext.rewards.reading.answer import extract_answer, json_value, last_fenced, short_answer
from swift_grpo_ext.rewards.reading.doubt import refuses, without_questions, without_refusals
from swift_grpo_ext.rewards.reading.json_text import json_values
from swift_grpo_ext.rewards.reading.numbers import (
    ANYTHING,
    CONCLUDED,
    Place,
    Quantity,
    quantities,
    stated_quantity,
)
from swift_grpo_ext.rewards.reading.spelled_numbers import CLASSIFIERS, with_digits
from swift_grpo_ext.rewards.reading.statement import CORRECTED, labels, taken_back, without_asides
from swift_grpo_ext.rewards.reading.tokens import named_by
from swift_grpo_ext.rewards.reading.words import QUANTITIES

GOLD = ("solution", "count", "answer")
MAX_SUM = 400  # characters of an answer in which a number is looked for that the others add up to
# Each pattern has an example of what it matches above it, which a test runs.

# "There are none": it is a zero
_NOTHING = re.compile(
    r"(?<![a-z])(?:none|no(?=\s[a-z])|nobody|nothing|not any|n't any)(?![a-z])|没有|沒有|不存在|无(?!法)"
    r"|ありません|いません|없습니다"
)
# "a single bird"
_SINGLE = re.compile(
    r"\b(?:an? |the |only )?(?:single|solitary|lone)\b|\b(?:only|just) (?:a |the )?(?:one|single)\b(?! of)"
)
# "not a single one"
_NOT_ONE = re.compile(
    r"(?:\bnot|n['’]t)(?: \w{1,10}){0,2} (?:a single|one|an?y?)\b|\b(?:do not|don['’]t|cannot"
    r"|can['’]t) (?:see|find|spot)\b|(?:一|半)\w{0,4}(?:也|都)(?:没|沒|不|无)有?"
)
# "a couple of"
_COUPLE = re.compile(r"\b(?:a )?(?:couple|pair)(?= of)")
# "at 10:30 pm"
_TIME = re.compile(
    r"\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|(?:sept?|oct|nov|dec)(?:o?(?:em)?ber)?)\.? \d{1,2}\b|"
    r"(?<![\d:])\d{1,2}:\d{2}(?::\d{2})?(?: ?[ap]\.?m\b\.?)?(?![\d:])|\b\d{1,2} ?(?:o['’]clock"
    r"|[ap]\.?m\b)|\d{1,2}点钟?"
)
# "7\n\nThree of them": a first line that is the number alone, and an explanation below it
_FIRST_LINE = re.compile(
    r"\W{0,8}(\d{1,9}(?:\.0)?)(?: [^\W\d]{1,16})?[.。!:：*\s]{0,6}\n\s*(?![\s\d(*•-]*\d)"
)
# "none. there are 3 cats": said first
_NONE_FIRST = re.compile(
    r"没有[^，,。\d]{1,12}[，,]\s?只有|\W{0,8}(?:0|none|zero|nothing)\W{0,2}[.,;:!—–(](?!\d)"
)
# "number_of_birds"
_KEY = re.compile(r"count|total|number|\bnum|quantity|数量|总数|个数")
_TOTALS: tuple[Place, ...] = tuple(
    (re.compile(before), re.compile(behind))
    for before, behind in (
        ("", r"[^\d\n.]{0,60}?\b(?:in total|altogether|in all|overall)\b"),
        (
            r"(?:(?<!in )\b(?:total|overall|altogether|in all|sum)\b|(?:\A|[.!\n]\s?)in total\b)"
            r"[^\d\n.]{0,40}\Z",
            "",
        ),
        (r"(?:一共|总共|共计|合计|总计|总数|共|全部で|合計|총)[^\d\n。,]{0,10}\Z", ""),
        (  # a number whose parts follow
            r"\A\W{0,8}\Z|(?:\bthere(?:'s| is| are| were| was| appear| seem)|\b(?:see|count|find|counted"
            r"|found"
            r"|identified|detect|shows|contains|has|depicts)|有|见到|看到|있습니다|あります|います)[^\d.,:]{0,24}\Z",
            r"(?:[^\W\d]|\s){0,40}(?:[:：(（—–](?!\s?(?:or|maybe|或|perhaps)\b)"
            r"|[,，.。]?\s?(?:including|consisting|made up|其中|包括|(?:\d{1,4} )?of (?:which|them|these))"
            r"|[,，] 1 (?:on|in|at|near|is|with|of)\b)",
        ),
    )
)
# " 5 dogs and 3 cats": the first thing is what was asked for, where no question says so
_FIRST_THING: Place = (
    re.compile(r"(?:\A\W{0,4}|\b(?:has|have|shows|contains|are|is|see)\s|有\s?)\Z"),
    re.compile(
        r"(?:\s([^\W\d]{2,16})){1,4}(?:,| and)\s\d{1,4}(?!\s\1\b)(?:\s[^\W\d]{2,16}){1,4}\W{0,4}\Z"
        rf"|[{CLASSIFIERS}]([\u4e00-\u9fff]{{1,6}})[和、,]\d{{1,4}}[{CLASSIFIERS}](?!\2)[\u4e00-\u9fff]{{1,6}}\W{{0,4}}\Z"
    ),
)
# ", while ": between two things that are counted
_PART = re.compile(
    r"[.,;:!?。，；：！？、()\n]+|\b(?:and|but|while|whereas|with|plus|versus|vs)\b|和|与|而|还有|以及"
)
# "no dogs": of something it is a count of none
_NO = re.compile(
    r"(?:\bno(?:ne)?|(?:\bnot|n['’]t)(?: \w{1,10}){0,2} any) +(?=(?!other|more|further|fewer|less"
    r"|additional|doubt)[a-z])"
    r"|(?:没有|沒有)(?=[\u4e00-\u9fff])"
)
# What is near the count but is not it, and what only numbers an object: "almost 7", "the 7th".
_BESIDE: tuple[Place, ...] = (
    (
        re.compile(
            r"(?:\b(?:almost|nearly|close to|just (?:under|over)|not quite|approaching|no(?: number)?)|接近"
            r"|将近)\s?\Z|\b(?:page|step|figure|chapter)\s\Z"
            r"|\b(?!(?:the|final|total|correct|exact|right) )[a-z]{3,16} number\s\Z"
        ),
        ANYTHING,
    ),
    (ANYTHING, re.compile(r"(?:st|nd|rd|th)\b")),
)


def _plain(text: str) -> str:
    text = _TIME.sub(" ", without_questions(unicodedata.normalize("NFKC", text).casefold()))
    refused = refuses(text)
    text = without_asides(without_refusals(text))
    text = _NOT_ONE.sub(" none ", text)
    text = _COUPLE.sub("2", _SINGLE.sub("1", re.sub(r"\bno[ -]one\b", "nobody", text)))
    text = with_digits(text.replace("/", " or "), alone=True)
    return text if re.search(r"\d", text) or refused else _NOTHING.sub("0", text, count=1)


def _whole(found: Iterable[Quantity | None]) -> list[int]:
    return [int(one.written) for one in found if one and one.written >= 0 and one.written.is_integer()]


def counts(text: str) -> list[int]:
    """All whole numbers from 0 of a text, in digits or words; 0 where it says but "no"."""
    return _whole(quantities(_plain(text)))


def _about(text: str, asked: frozenset[str]) -> str:
    """The parts of a text with a number that name most of what is asked for; "" if none does.

    All of it where it ends in a number that is said of nothing by itself ("3 here, 2 there, in all 5").
    """
    parts = [""]  # each but the last with one number, or several without a mark between them
    for part, mark in zip_longest(_PART.split(text), _PART.findall(text), fillvalue=""):
        parts[-1] += part
        if re.search(r"\d", part):
            parts.append("")
        elif re.search(r"[.!?\n]", mark) and ":" not in mark:
            parts[-1] = "\n"
        else:
            parts[-1] += mark
    *parts, rest = parts
    names = [named_by(part) for part in parts]
    best = max((len(said & asked) for said in names), default=0)
    if not best or not names[-1]:
        return text * (best > 0)
    parts[-1] += rest
    return "".join(part for part, said in zip(parts, names, strict=True) if len(said & asked) == best)


def _number_of(asked: frozenset[str]) -> Place:
    """Where a number of what is asked for stands."""
    others = (QUANTITIES.translations.get(word, ()) for word in asked)
    names = "|".join(map(re.escape, sorted(asked.union(*others))))
    return ANYTHING, re.compile(rf"(?:\s[^\W\d]{{1,16}}){{0,2}}\s?[{CLASSIFIERS}]?(?:{names})")


def stated_count(text: str, asked: frozenset[str] = frozenset()) -> int | None:
    """The count that a text states: alone in its first line, a total, or what `stated_quantity` finds.

    Of several things that which is asked for, else the first one; what the others add up to is the total.

    None if it states none: a bound ("more than 7"), a range, a refusal, a question.
    """
    plain = _plain(taken_back(text)[0])
    first = _FIRST_LINE.match(plain)
    alone = first is not None and not any(place[0].search(plain[-48:]) for place in _TOTALS[1:3])
    source = first[1] if first and alone else plain
    if _NONE_FIRST.match(plain):
        return 0
    numbers = counts(text[:MAX_SUM])
    if len(text) <= MAX_SUM and len(numbers) > 2 and not CORRECTED.search(text):
        for total in (numbers[0], numbers[-1]):
            if 2 * total == sum(numbers):
                return total
    places = (CONCLUDED, *_TOTALS)
    if asked and not labels(plain):
        source = _about(_NO.sub("0 ", source), asked) or source
        places = (*places, _number_of(asked))
    return next(iter(_whole([stated_quantity(source, (*places, _FIRST_THING), _BESIDE)])), None)


def _stated(completion: str, asked: frozenset[str]) -> int | None:
    """The count that a completion states; of an object in JSON the value under a key such as ``count``."""
    answer = extract_answer(completion)
    values = json_values(last_fenced(answer)) if answer and "{" in answer else None
    if values and len(values) == 1 and isinstance(values[0], dict):
        by_key = {str(key).casefold(): value for key, value in values[0].items()}
        keys = [key for key in by_key if _KEY.search(key)]
        keys = keys or [key for key in by_key if named_by(key) & asked]
        plain = json_value(answer or "")
        if keys and not isinstance(by_key[keys[0]], (list, dict)):
            counted = str(by_key[keys[0]])
            agrees = plain is None or counts(str(plain)) == counts(counted)
            return stated_count(counted) if agrees else None
        if keys or (len(by_key) > 1 and plain is None):
            return None
    return stated_count(short_answer(completion) or "", asked)


def _gold_count(columns: Columns) -> int:
    gold = gold_string(columns, GOLD)
    found = counts(gold)
    if len(found) != 1:
        raise Unscorable(f"gold {gold!r:.80} is not one whole number from 0")
    return found[0]


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
    return float(_stated(completion, asked_for(columns)) == gold)


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
    predicted = _stated(completion, asked_for(columns))
    return 0.0 if predicted is None else 1.0 - min(1.0, abs(predicted - gold) / max(gold, 1))
