"""The count that an answer states, in digits or words: as a total, of what was asked for, or by itself."""

import re
import unicodedata
from collections.abc import Iterable

from swift_grpo_ext.rewards.reading.answer import KEYS, extract_answer, last_fenced, short_answer
from swift_grpo_ext.rewards.reading.assertion import asserted
from swift_grpo_ext.rewards.reading.doubt import refuses
from swift_grpo_ext.rewards.reading.json_text import Json, json_values
from swift_grpo_ext.rewards.reading.numbers import (
    CONCLUDED,
    LIST,
    Place,
    Quantity,
    about,
    place,
    quantities,
    stated_quantity,
)
from swift_grpo_ext.rewards.reading.spelled_numbers import CLASSIFIERS, with_digits
from swift_grpo_ext.rewards.reading.statement import CORRECTED, first_line, labels, taken_back, without_asides
from swift_grpo_ext.rewards.reading.tokens import named_by
from swift_grpo_ext.rewards.reading.words import QUANTITIES

MAX_SUM = 400  # characters of an answer in which a number is looked for that the others add up to


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
# "none. there are 3 cats": said first
_NONE_FIRST = re.compile(
    r"没有[^，,。\d]{1,12}[，,]\s?只有|\W{0,8}(?:0|none|zero|nothing)\W{0,2}[.,;:!—–(](?!\d)"
)
# "number_of_birds"
_KEY = re.compile(r"count|total|number|\bnum|quantity|数量|总数|个数")
_TOTALS = (
    place(behind=r"[^\d\n.]{0,60}?\b(?:in total|altogether|in all|overall)\b"),
    place(
        r"(?:(?<!in )\b(?:total|overall|altogether|in all|sum)\b|(?:\A|[.!\n]\s?)in total\b)"
        r"[^\d\n.]{0,40}\Z"
    ),
    place(r"(?:一共|总共|共计|合计|总计|总数|共|全部で|合計|총)[^\d\n。,]{0,10}\Z"),
    place(  # a number whose parts follow
        r"\A\W{0,8}\Z|(?:\bthere(?:'s| is| are| were| was| appear| seem)|\b(?:see|count|find|counted"
        r"|found"
        r"|identified|detect|shows|contains|has|depicts)|有|见到|看到|있습니다|あります|います)[^\d.,:]{0,24}\Z",
        r"(?:[^\W\d]|\s){0,40}(?:[:：(（—–](?!\s?(?:or|maybe|或|perhaps)\b)"
        r"|[,，.。]?\s?(?:including|consisting|made up|其中|包括|(?:\d{1,4} )?of (?:which|them|these))"
        r"|[,，] 1 (?:on|in|at|near|is|with|of)\b)",
    ),
)
# " 5 dogs and 3 cats": the first thing is what was asked for, where no question says so
_FIRST_THING = place(
    (r"(?:\A\W{0,4}|\b(?:has|have|shows|contains|are|is|see|hay|y a|sind)\s|有\s?)\Z"),
    (
        r"(?:\s([^\W\d]{2,16})){1,4}(?:,| (?:and|y|et|und))\s\d{1,4}(?!\s\1\b)"
        r"(?:\s[^\W\d]{2,16}){1,4}\W{0,4}\Z"
        rf"|[{CLASSIFIERS}]([\u4e00-\u9fff]{{1,6}})[和、,]\d{{1,4}}[{CLASSIFIERS}](?!\2)[\u4e00-\u9fff]{{1,6}}\W{{0,4}}\Z"
    ),
)
# "no dogs": of something it is a count of none
_NO = re.compile(
    r"(?:\bno(?:ne)?|(?:\bnot|n['’]t)(?: \w{1,10}){0,2} any) +(?=(?!other|more|further|fewer|less"
    r"|additional|doubt)[a-z])"
    r"|(?:没有|沒有)(?=[\u4e00-\u9fff])"
)
# What is near the count but is not it, and what only numbers an object: "almost 7", "the 7th".
_BESIDE = (
    place(
        r"(?:\b(?:almost|nearly|close to|just (?:under|over)|not quite|approaching|no(?: number)?)|接近"
        r"|将近)\s?\Z|\b(?:page|step|figure|chapter)\s\Z"
        r"|\b(?!(?:the|final|total|correct|exact|right) )[a-z]{3,16} (?:number|no\.)\s\Z"
    ),
    place(behind=r"(?:st|nd|rd|th)\b"),
)


def stated_count(completion: str, topic: frozenset[str] = frozenset()) -> int | None:
    """The count of what is asked for that a completion states, in prose or in JSON; None if it states none.

    A bound ("more than 7"), a range, a choice, a refusal and a question state none.
    """
    by_key = _object(extract_answer(completion) or "")
    if not by_key:
        return _in_prose(short_answer(completion) or "", topic)
    values = [value for key, value in by_key.items() if _KEY.search(key) or key in KEYS]
    values = values or [value for key, value in by_key.items() if len(by_key) == 1 or named_by(key) & topic]
    stated = {None if isinstance(value, list) else _in_prose(str(value), topic) for value in values}
    return stated.pop() if len(stated) == 1 else None


def _object(answer: str) -> dict[str, Json]:
    """The only object in JSON of an answer, by keys in lower case; empty if there is none."""
    values = json_values(last_fenced(answer)) or ()
    objects = [value for value in values if isinstance(value, dict)]
    return {key.casefold(): value for key, value in objects[0].items()} if len(objects) == 1 else {}


def _in_prose(text: str, topic: frozenset[str] = frozenset()) -> int | None:
    """The count behind the last thing that a text takes back, else in all of it."""
    values = (_counted(part, topic) for part in taken_back(text))
    return next((value for value in values if value is not None), None)


def _counted(text: str, topic: frozenset[str]) -> int | None:
    """Alone in the first line, a total, what the others add up to, or what `stated_quantity` finds.

    Of several things that which is asked for, else the first one.
    """
    plain = _plain(text)
    source = first_line(plain)
    if _NONE_FIRST.match(plain):
        return 0
    numbers = counts(text[:MAX_SUM])
    if len(numbers) > 2 and not CORRECTED.search(text):
        for total in (numbers[0], numbers[-1]):
            if 2 * total == sum(numbers):
                return total
    row = plain.rpartition(":")[2]
    if LIST.fullmatch(row) and len(set(listed := counts(row))) > 1 and listed[0] > 1:
        return None  # 4, 5, 6: nobody counts from there
    places: tuple[Place, ...] = (CONCLUDED, *_TOTALS)
    if topic and not labels(plain):
        source = about(_NO.sub("0 ", source), topic) or source
        places = (*places, _number_of(topic))
    return next(iter(_whole([stated_quantity(source, (*places, _FIRST_THING), _BESIDE)])), None)


def counts(text: str) -> list[int]:
    """All whole numbers from 0 of a text, in digits or words; 0 where it says but "no"."""
    return _whole(quantities(_plain(text)))


def _whole(numbers: Iterable[Quantity | None]) -> list[int]:
    return [
        int(quantity.written)
        for quantity in numbers
        if quantity and quantity.written >= 0 and quantity.written.is_integer()
    ]


def _plain(text: str) -> str:
    """What a text asserts, with its counts in digits, and without times of the day."""
    text = _TIME.sub(" ", unicodedata.normalize("NFKC", text).casefold())
    refused = refuses(text)
    text = _NOT_ONE.sub(" none ", without_asides(asserted(text)))
    text = _COUPLE.sub("2", _SINGLE.sub("1", re.sub(r"\bno[ -]one\b", "nobody", text)))
    text = with_digits(text.replace("/", " or "), alone=True)
    return text if re.search(r"\d", text) or refused else _NOTHING.sub("0", text, count=1)


def _number_of(topic: frozenset[str]) -> Place:
    """Where a number of what is asked for stands."""
    others = (QUANTITIES.translations.get(word, ()) for word in topic)
    names = "|".join(map(re.escape, sorted(topic.union(*others))))
    return place(behind=rf"(?:\s[^\W\d]{{1,16}}){{0,2}}\s?[{CLASSIFIERS}]?(?:{names})")
