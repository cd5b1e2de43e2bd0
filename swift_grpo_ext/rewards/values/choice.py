r"""An option: its letter, its letter and its text, or its text where the row lists the options.

>>> pets = {"A": "a cat", "B": "a dog"}
>>> [read(text, pets) for text in ("B", "(b)", "B.", "B) a dog", "B (a dog)", "Option B: a dog", "a dog")]
['B', 'B', 'B', 'B', 'B', 'B', 'B']
>>> read(r"(B)\text{ a dog}", pets), read("C. a bird", {}), sorted(read_all("A, C", {}))
('B', 'C', ['A', 'C'])

Letter and text must agree, and where the options are letters themselves the letter wins. Several letters,
between commas or one after the other, are an answer where several are right. Nothing else is one: ``A or B``,
``not B``, ``B, I think``, ``A dog``.
"""

import re
from collections.abc import Mapping

from swift_grpo_ext.rewards.contract import Unread

GRAMMAR = "option (its letter, or letter and text that agree, or its text)"
_ONE = re.compile(
    r"(?:(?:option|choice|answer|选项?)\s?)?[(\[]?([A-Za-z])[)\]]?(?:\s?[.:)、]\s*(.*)|\s+[(\[]\s?(.*)[)\]]"
    r"|(?<=[)\]])\s*(.*)|\s+[-–—]\s+(.*))?",
    re.DOTALL | re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"[(\[]?[A-Z][)\]]?(?:(?:\s?[,;&、]\s?(?:and )?|\s?\band\s|\s?和\s?|\s)[(\[]?[A-Z][)\]]?){1,25}"
    r"|[A-Z]{2,26}"
)
_LETTER = re.compile(r"[A-Z]")
# Ignored when option texts are compared: spaces of LaTeX, braces, dollar signs, quotes, marks of emphasis,
# the size of a fraction, the mark that raises a degree's sign.
_LOOSE = re.compile(
    r"(?<=\\)[dt](?=frac)|\^(?=\{?\s?\\circ)|\\[,;!: ()]"
    r"|\\(?:text|mathrm|mathbf|textbf|displaystyle|left|right|q?quad)\b|[\s{}$\\*`\"'“”~]"
)
# A lone letter, as it names another option; "A" and "I" only with a mark, for they are words, too.
_MARKED = re.compile(r"(?<![\w'])(?:[B-HJ-Z](?![\w'])|[AI](?=[).:]))")


def plain(text: str) -> str:
    """An option's text as it is compared: without case, spaces, signs of LaTeX and its full stop."""
    return _LOOSE.sub("", text.replace("°", r"\circ")).casefold().rstrip(".。")


def read(text: str, options: Mapping[str, str]) -> str:
    """The letter of the option that a text names; `options` are the row's by letter, if it lists any.

    Raises:
        Unread: It is not an option, or names a letter with another option's text.
    """
    match = _ONE.fullmatch(text)
    if match is not None:
        letter = match[1].upper()
        rest = next(filter(None, match.groups()[1:]), "")
        if (not options or letter in options) and _agrees(letter, rest, options):
            return letter
    by_text = [letter for letter, option in options.items() if plain(option) == plain(text)]
    if len(by_text) != 1 or not plain(text):
        raise Unread(text, GRAMMAR)
    return by_text[0]


def _agrees(letter: str, rest: str, options: Mapping[str, str]) -> bool:
    """True if the text behind a letter is its option's, and no other letter stands in it."""
    if not rest or (options and plain(rest) == plain(options[letter])):
        return True
    first = re.split(r"[.,;\n]\s", rest, maxsplit=1)[0]
    if options and plain(first) != plain(options[letter]):
        return False
    return set(_MARKED.findall(rest)) <= {letter}


def read_all(text: str, options: Mapping[str, str]) -> frozenset[str]:
    """The letters of the options that a text names, one or several.

    Raises:
        Unread: It names none, or one twice.
    """
    if _SEVERAL.fullmatch(text) and not any(plain(option) == plain(text) for option in options.values()):
        letters = _LETTER.findall(text.replace("and", ""))
        if len(set(letters)) == len(letters) and not (options and set(letters) - options.keys()):
            return frozenset(letters)
    return frozenset([read(text, options)])
