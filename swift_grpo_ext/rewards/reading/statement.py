"""How answers are stated in prose: "the answer is", 答案是, 정답은; and what is said of being unsure."""

import re
from typing import TypeAlias, TypeVar

from swift_grpo_ext.rewards.reading.words import STATEMENTS

T = TypeVar("T")
# Start and end of the words that announce an answer, and what they announce.
Statement: TypeAlias = tuple[int, int, T]

MOST_CORRECTIONS = 4  # of a text that are looked at, from its end
_WIDTHS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}


# Every label holds one of these.
_ANNOUNCING = [re.sub(r".\?", "", word) for name in ("spaced", "unspaced") for word in STATEMENTS.parts[name]]


def taken_back(text: str) -> list[str]:
    """What a text says after each time that it takes something back ("wait, no"), the last first; and all."""
    ends = [mark.end() for mark in STATEMENTS.taken_back.finditer(text)]
    starts = [0, *(end for end in ends[-MOST_CORRECTIONS:] if end < len(text.rstrip(" .!。")))]
    return [text[start:] for start in reversed(starts)]


# "2.4 %\n\nThis is the lowest value since 2010.": a value by itself, and what is said of it
_FIRST_LINE = re.compile(r"\W{0,8}\d[\d.,]{0,24}\s?[%°\w/]{0,8}\W{0,6}\n\s*\n(?=\W{0,4}[^\W\d])")


def first_line(text: str) -> str:
    """The first line, if it is a value by itself and nothing below it announces or concludes another."""
    value = _FIRST_LINE.match(text)
    if value is None or labels(text) or STATEMENTS.corrected.search(text):
        return text
    return value[0]


def fold_width(text: str) -> str:
    """Full-width letters, digits, signs and spaces as the usual ones; nothing else changes."""
    return text if text.isascii() else text.translate(_WIDTHS)


def folded(text: str) -> str:
    """The text without regard to case, character by character: places in it are places in the text."""
    plain = text.casefold()
    if len(plain) == len(text):
        return plain
    return "".join(letter.casefold() if len(letter.casefold()) == 1 else letter for letter in text)


def labels(text: str) -> list[re.Match[str]]:
    """Every place of a text that announces an answer."""
    plain = text.casefold()  # substring searches are many times faster than the pattern
    return list(STATEMENTS.label.finditer(text)) if any(word in plain for word in _ANNOUNCING) else []


def after_label(text: str) -> str:
    """What follows the last announcement of an answer, to the end of the text; empty if there is none."""
    announced = labels(text)
    rest = text[announced[-1].end() :].lstrip(" \t\r\n:：") if announced else ""
    for mark in ("**", "*", "_"):  # the label itself may be bold: "**Answer:** B"
        if rest.startswith(mark) and rest.count(mark) % 2:
            return rest[len(mark) :].strip()
    return rest.strip()


def without_asides(text: str) -> str:
    """The text without what it says beside its numbers, if a number is left: "12 (of 18)", "up from 9"."""
    rest = STATEMENTS.aside.sub(" ", text)
    return rest if re.search(r"\d", rest) else text


def without_explanation(text: str) -> str:
    """The text up to the heading of an explanation, unless an answer is announced below it."""
    heading = STATEMENTS.explanation.search(text)
    if heading is None or labels(text[heading.start() :]):
        return text
    return text[: heading.start()]


def last_statement(statements: list[Statement[T]], text: str, contradiction: T) -> T:
    """The last statement if it agrees with the one other before it, takes it back or stands below it."""
    *earlier, (start, end, last) = sorted(statements, key=lambda statement: statement[0])
    others = [(behind, value) for _, behind, value in earlier if value != last]
    if not others or STATEMENTS.corrected.search(text, others[-1][0], end):
        return last
    listed = any(value != others[-1][1] for _, value in others)  # one announcement for each option
    return contradiction if listed or "\n" not in text[others[-1][0] : start] else last
