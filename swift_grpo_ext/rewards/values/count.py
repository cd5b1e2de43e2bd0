"""A count: a whole number from 0 in digits, or zero to twenty in words, and at most the counted noun.

>>> [read(text) for text in ("4", "1,234", "four", "4 apples", "Twelve red blocks", "4个", "３")]
[4, 1234, 4, 4, 12, 4, 3]

Nothing else is one: ``4 or 5``, ``about 4``, ``no 4``, ``2 + 2``, ``4.5``, ``-4``, ``several``.
"""

import re

from swift_grpo_ext.rewards.contract import Unread

GRAMMAR = "count (a whole number, or zero to twenty)"
WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
# Words that, behind a number, make it another number or none at all.
_NO_NOUN = (
    r"(?!(?:or|to|and|not|no|than|more|less|fewer|minus|plus|times|at|if|is|but|of|maybe|unless|except"
    r"|(?:hundred|thousand|million|billion|dozen)s?|percent|half|halves|thirds|tenths|point|squared|cubed|factorial"
    r"|(?:thir|for|fif|six|seven|eigh|nine)ty|" + "|".join(WORDS) + r")\b)"
)
_NO_HAN = "(?![或到至不非无多少几约左右半百千万亿以余起来一二三四五六七八九十]|分之|上下)"
# The counted noun: one or two words, or some characters.
NOUN = rf"(?:(?:\s{_NO_NOUN}[a-z][a-z'-]{{1,20}}){{1,2}}|\s?(?:{_NO_HAN}[\u4e00-\u9fff]){{1,6}})"
_COUNT = re.compile(
    rf"(?:(\d{{1,3}}(?:,\d{{3}}){{1,4}}|\d{{1,15}})|({'|'.join(reversed(WORDS))}))(?:\.0{{1,3}})?(?![.\d,])"
    rf"{NOUN}?",
    re.IGNORECASE,
)


def read(text: str) -> int:
    """Read a text as a count.

    Raises:
        Unread: It is not a count.
    """
    match = _COUNT.fullmatch(text)
    if match is None:
        raise Unread(text, GRAMMAR)
    return int(match[1].replace(",", "")) if match[1] else WORDS.index(match[2].lower())
