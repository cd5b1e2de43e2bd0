"""The count that an answer states, in digits or words: as a total, of what was asked for, or by itself."""

import re
import unicodedata
from collections.abc import Iterable

from swift_grpo_ext.rewards.reading.answer import KEYS, extract_answer, last_fenced, short_answer
from swift_grpo_ext.rewards.reading.assertion import asserted, refuses
from swift_grpo_ext.rewards.reading.json_text import Json, json_values
from swift_grpo_ext.rewards.reading.numbers import (
    LIST,
    Quantity,
    about,
    meant,
    quantities,
    stated_quantity,
)
from swift_grpo_ext.rewards.reading.schema import NumberPlace, place
from swift_grpo_ext.rewards.reading.spelled_numbers import CLASSIFIERS, with_digits
from swift_grpo_ext.rewards.reading.statement import first_line, labels, taken_back, without_asides
from swift_grpo_ext.rewards.reading.tokens import named_by
from swift_grpo_ext.rewards.reading.words import COUNTS, NUMBERS, QUANTITIES, STATEMENTS

MAX_SUM = 400  # characters of an answer in which a number is looked for that the others add up to


def stated_count(completion: str, topic: frozenset[str] = frozenset()) -> int | None:
    """The count of what is asked for that a completion states, in prose or in JSON; None if it states none.

    A bound ("more than 7"), a range, a choice, a refusal and a question state none.
    """
    by_key = _object(extract_answer(completion) or "")
    if not by_key:
        return _in_prose(short_answer(completion) or "", topic)
    values = [value for key, value in by_key.items() if COUNTS.key.search(key) or key in KEYS]
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
    if COUNTS.none_first.match(plain):
        return 0
    numbers = _whole(quantity for _, _, quantity in meant(plain[:MAX_SUM])[1])
    if len(numbers) > 2 and not STATEMENTS.corrected.search(text):
        for total in (numbers[0], numbers[-1]):
            if 2 * total == sum(numbers):
                return total
    row = plain.rpartition(":")[2]
    if LIST.fullmatch(row) and len(set(listed := counts(row))) > 1 and listed[0] > 1:
        return None  # 4, 5, 6: nobody counts from there
    places: tuple[NumberPlace, ...] = (NUMBERS.concluded, *COUNTS.totals)
    if topic and not labels(plain):
        source = about(COUNTS.no.sub("0 ", source), topic) or source
        places = (*places, _number_of(topic))
    return next(iter(_whole([stated_quantity(source, (*places, COUNTS.first_thing), COUNTS.beside)])), None)


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
    text = COUNTS.time.sub(" ", unicodedata.normalize("NFKC", text).casefold())
    refused = refuses(text)
    text = COUNTS.not_one.sub(" none ", without_asides(asserted(text)))
    text = COUNTS.couple.sub("2", COUNTS.single.sub("1", re.sub(r"\bno[ -]one\b", "nobody", text)))
    text = with_digits(text.replace("/", " or "), alone=True)
    return text if re.search(r"\d", text) or refused else COUNTS.nothing.sub("0", text, count=1)


def _number_of(topic: frozenset[str]) -> NumberPlace:
    """Where a number of what is asked for stands."""
    others = (QUANTITIES.translations.get(word, ()) for word in topic)
    names = "|".join(map(re.escape, sorted(topic.union(*others))))
    return place(behind=rf"(?:\s[^\W\d]{{1,16}}){{0,2}}\s?[{CLASSIFIERS}]?(?:{names})")
