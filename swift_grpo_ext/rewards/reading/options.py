"""Which options of a multiple-choice question a text chooses."""

import re
import string

from swift_grpo_ext.rewards.reading.answer import normalise_short, short_answer
from swift_grpo_ext.rewards.reading.assertion import is_denied, refuses, stated
from swift_grpo_ext.rewards.reading.schema import by_word
from swift_grpo_ext.rewards.reading.statement import Statement, last_statement
from swift_grpo_ext.rewards.reading.tokens import named_by
from swift_grpo_ext.rewards.reading.words import DOUBTS, OPTIONS, WRITING

Options = dict[str, str]
Letters = frozenset[str]

# "(B)."
_ALONE = re.compile(r"[(\[{]?([A-Za-z])[)\]}]?[.:。]?\Z")
# "(B)"
_MARK = re.compile(r"(?:[(\[{]([A-Za-z])[)\]}]|(?<![^\W_])([A-Z])[).:、])")
# "B"
_SINGLE = re.compile(r"(?<![A-Za-z0-9])[A-Za-z](?![A-Za-z0-9])")
# "'B'"
_QUOTED = re.compile(r"[\"']([A-Za-z])[\"']")
# "ABD"
_RUN = re.compile(r"[A-Z]{2,26}\Z")


# "none of the above"
_NONE_OF = re.compile(r"none of (?:the |these )?\w{0,12}\Z")
# "the dog"
_ARTICLE = re.compile(r"\A(?:an?|the) (?!and\b|or\b)(?=\w{3})")

_PLACES = by_word(OPTIONS.places)


def plain(text: str) -> str:
    """Text of an option for comparison: case, width and outer punctuation do not matter."""
    bare = without_latex(normalise_short(text)).casefold().strip(" .,;:!。，；：！()[]")
    return _ARTICLE.sub("", bare)


def stated_options(completion: str, options: Options) -> Letters:
    """The letters of the options that a completion chooses; empty if it chooses none."""
    text = short_answer(completion)
    if text and not any(option[:1].isdigit() or option.endswith(" one") for option in options.values()):
        text = OPTIONS.counted.sub(_as_letter, text)
    return parse_choice(text, options) if text else frozenset()


def _as_letter(counted: re.Match[str]) -> str:
    """ "the second option" as "option B"."""
    place = next(filter(None, counted.groups()))
    return f"option {_PLACES[place.casefold()]}"


def parse_choice(text: str, options: Options) -> Letters:
    """The letters that a text chooses, by the first reading that finds some; empty if none does."""
    text = _QUOTED.sub(r"\1", without_latex(text) if options else text)
    if (bare := _bare(text, options)) is not None:
        return bare

    def chosen(text: str) -> Letters | None:
        text = _without_rejected(text, options).strip()
        readers = (_announced, _led_by, _implied, _named, _described)
        readings = (read(text, options) for read in readers)
        return next((letters for letters in readings if letters is not None), None)

    refusals = any(map(refuses, options.values()))  # an option may be one: "cannot be determined"
    return stated(text, chosen, refusals) or frozenset()


def _letters_of(options: Options) -> Letters:
    """The letters that may be chosen; all of them where no options are listed."""
    return frozenset(options or string.ascii_uppercase)


def without_latex(text: str) -> str:
    """The text with short formulas as people type them: ``40^\\circ`` as ``40°``, fractions as ``1/2``."""
    for form in WRITING.typed:
        text = form.rewritten(text)
    return text


def _without_rejected(text: str, options: Options) -> str:
    """The text without what it compares its answer with: "rather than C", "all except B", "not green"."""
    text = OPTIONS.wrong.sub(" ", OPTIONS.rejected.sub(" ", OPTIONS.echoed.sub(" ", text)))
    texts = sorted(filter(_is_named, options.values()), key=len, reverse=True)
    option = rf"(?:the |an? )?(?:{'|'.join(map(re.escape, texts)) or '(?!)'})"
    rejected = (
        rf"(?:(?:{OPTIONS.rejecting.pattern})(?:\w{{2,12}}ing )?|\bno ){option}"
        rf"(?:(?:,|,?\s(?:nor|or|and))\s{option}){{0,9}}(?!\w)(?:\s?\((?:option )?[A-Z]\))?"
    )
    wrong = f"{option}{DOUBTS.rejected.pattern}"
    return re.sub(f"{rejected}|{wrong}", " ", text, flags=re.IGNORECASE)


def _bare(text: str, options: Options) -> Letters | None:
    """The text is nothing but an option or letters."""
    bare = plain(text)
    equal = [
        letter
        for letter, option in options.items()
        if option and bare in (option, option.rstrip("?？"), _NONE_OF.sub("none", option))
    ]
    if equal:
        return frozenset(equal[:1])
    pieces = [OPTIONS.leading.match(piece) for piece in OPTIONS.between.split(text.strip(" .。*"))]
    named = {(piece[1] or piece[2]).upper(): plain(piece.string[piece.end() :]) for piece in pieces if piece}
    if len(named) == len(pieces) > 1 and named.items() <= options.items():
        return frozenset(named)
    if OPTIONS.several.match(text):
        return frozenset(letter.upper() for letter in _SINGLE.findall(text))
    return frozenset(text) if _RUN.match(text) and len(set(text)) == len(text) else None


def _led_by(text: str, options: Options) -> Letters | None:
    """ "B. a dog", or a list of such lines; nothing if a letter stands before another one or its text."""
    if not OPTIONS.leading.match(text):
        return None
    possible = _letters_of(options)
    lines = [line for line in map(str.strip, text.split("\n", len(possible))) if line]
    listed = all(map(OPTIONS.leading.match, lines)) and (
        len(lines) == len(possible) or not OPTIONS.explained.search(text)
    )
    letters: set[str] = set()
    for leading in filter(None, map(OPTIONS.leading.match, lines if listed else [text])):
        letter = (leading[1] or leading[2]).upper()
        rest = leading.string[leading.end() :].partition("\n")[0]
        marks = [*_MARK.finditer(OPTIONS.explained.split(rest, maxsplit=1)[0])]
        if (alone := _ALONE.match(rest)) and options.get(letter) != plain(rest):
            marks.append(alone)
        others = {mark[mark.lastindex or 1].upper() for mark in marks} & possible - {letter}
        letters.add("" if others or _contradicts(rest, letter, options) else letter)
    return frozenset(letters)


def _contradicts(rest: str, letter: str, options: Options) -> bool:
    """Whether the text behind a letter begins with another option's text, and not with its own."""
    start = rest.lstrip(" )].:：-–—*,、\"'“(\t").casefold()
    fitting = _beginning(start, options)
    return bool(fitting) and letter not in fitting


def _beginning(text: str, options: Options) -> list[str]:
    """The letters of the options with whose text this one begins, that of the longest first."""
    text = _ARTICLE.sub("", text.casefold())
    begun = [letter for letter, option in options.items() if text.startswith(option)]
    named = [letter for letter in begun if _is_named(options[letter]) and _whole(text, 0, options[letter])]
    return sorted(named, key=lambda letter: -len(options[letter]))


def _announced(text: str, options: Options) -> Letters | None:
    """What is announced as the answer; the last announcement counts if it takes an earlier one back."""
    announced: list[Statement[Letters]] = []
    possible = _letters_of(options)
    for label in OPTIONS.chosen.finditer(text):
        if (letters := _after(text, label.end(), options)) is not None:
            announced.append((*label.span(), letters))
    for right in OPTIONS.is_right.finditer(text):
        if letters := possible & {right[1], right[2]}:
            announced.append((*right.span(), letters))
    return last_statement(announced, text, frozenset()) if announced else None


def _after(text: str, start: int, options: Options) -> Letters | None:
    """The option, or the letters, that a text names from here on; None if it names none at once."""
    if skipped := OPTIONS.before_letter.match(text, start):
        start = skipped.end()
    if fitting := _beginning(text[start : start + 400], options):
        return frozenset(fitting[:1])
    match = OPTIONS.letters.match(text, start)
    if match is None or OPTIONS.is_article.match(text, start):
        return None
    line = text[start : start + 80].partition("\n")[0].rstrip(" .。!*")
    if OPTIONS.several.match(line):
        return frozenset(letter.upper() for letter in _SINGLE.findall(line))
    letters = frozenset({*match[1].upper(), *_SINGLE.findall(match[2])})
    rest = text[match.end() : match.end() + 400].partition("\n")[0]
    return frozenset() if len(letters) == 1 and _contradicts(rest, min(letters), options) else letters


def _implied(text: str, options: Options) -> Letters | None:
    """A letter in the last words, in the first, or the only one at all."""
    possible = _letters_of(options)
    last = text.rstrip().rpartition("\n")[2]
    for match in (
        OPTIONS.closing.search(text[-64:]),
        _ALONE.match(last.strip(' *`#"')),
        OPTIONS.opening.match(text),
    ):
        if match and match[1].upper() in possible:
            return frozenset(match[1].upper())
    return possible & {letter for match in OPTIONS.placed.finditer(text) for letter in match.groups()} or None


def _named(text: str, options: Options) -> Letters | None:
    """The options whose text stands in the answer; the longest where they overlap."""
    rest = text.casefold()
    named: set[str] = set()
    for letter, option in sorted(options.items(), key=lambda item: -len(item[1])):
        if _is_named(option):
            places = re.finditer(re.escape(option), rest)
            starts = (place.start() for place in places)
            if any(_whole(rest, start, option) and not is_denied(rest, start) for start in starts):
                named.add(letter)
                rest = rest.replace(option, "\0" * len(option))
    return frozenset(named) or None


def _described(text: str, options: Options) -> Letters | None:
    """The one option all of whose own words stand in the answer, which has no own word of another."""
    words = named_by(text)
    of_option = {letter: named_by(option) for letter, option in options.items()}
    shared = frozenset.intersection(words, *of_option.values())
    touched = [letter for letter, own in of_option.items() if (own - shared) & words]
    if len(touched) != 1 or OPTIONS.denying.search(text):
        return None
    return frozenset(touched) if of_option[touched[0]] <= words else None


def _is_named(option: str) -> bool:
    """Whether an option's text is no mere letter or sign, and can be looked for."""
    return len(option) > 1 or option.isdigit()


def _whole(text: str, start: int, option: str) -> bool:
    """Whether an option's text stands there as words of its own, as far as its script has words."""
    around = text[max(0, start - 1) : start] + text[start + len(option) : start + len(option) + 1]
    return not (option[0] + option[-1]).isascii() or not re.search(r"[A-Za-z0-9/-]", around)
