"""Which options of a multiple-choice question a text chooses."""

import re
import string

from swift_grpo_ext.rewards.reading.answer import normalise_short, short_answer
from swift_grpo_ext.rewards.reading.assertion import stated
from swift_grpo_ext.rewards.reading.doubt import NEGATION, REJECTED, is_denied, refuses
from swift_grpo_ext.rewards.reading.statement import LABEL, Statement, last_statement
from swift_grpo_ext.rewards.reading.tokens import named_by
from swift_grpo_ext.rewards.reading.words import OPTIONS, WRITING, any_case, by_word

Options = dict[str, str]
Letters = frozenset[str]

_LETTER = r"[(\[{]?([A-Za-z])[)\]}]?[.:。]?"
# "(B)."
_ALONE = re.compile(_LETTER + r"\Z")
# "B. a dog"
LEADING = re.compile(
    r"(?:(?i:option|choice)\s)?(?:[(\[{]([A-Za-z])[)\]}]|([A-Z])(?:[).:、]"
    r"|\s{1,4}[-–—]\s))[.:]?\s{0,8}(?=\S)(?![A-Z]\.)"
)
# "(B)"
_MARK = re.compile(r"(?:[(\[{]([A-Za-z])[)\]}]|(?<![^\W_])([A-Z])[).:、])")
# "A, C and D"
_SEVERAL = re.compile(
    rf"{_LETTER}(?:\s{{0,4}}(?:,|;|/|&|、|\b(?:and|or|y|ou?|e|et|und|oder)\b|和|与|或|及"
    rf"|\s)\s{{0,4}}{_LETTER}){{1,25}}\Z"
)
# "B"
_SINGLE = re.compile(r"(?<![A-Za-z0-9])[A-Za-z](?![A-Za-z0-9])")
# "'B'"
_QUOTED = re.compile(r"[\"']([A-Za-z])[\"']")
# "ABD"
_RUN = re.compile(r"[A-Z]{2,26}\Z")
# "because"
_EXPLAINED = any_case(
    r"\b(?:because|since|as|for|due|given|and|but|while|which|where|not|rather|unlike|would|is|are|in)\b"
    r"|因为|而不是|不是|由于"
)

# "I choose"
_CHOSEN = any_case(
    rf"{LABEL}|\b(?:option|choice)(?: is\b| would be\b| should be\b|:)"
    r"|\b(?:so|thus|therefore|hence),? (?:it|this|that|the)(?: \w{1,16}){0,3} (?:is|must be)\b"
    r"|\b(?:choose|select|pick|chose|go(?:ing)? with|choosing|selecting|opt for)\b"
    r"|[选選](?!项|項)(?:择|擇|了)?[:：]?|(?:正确|錯|正確)的?[选選][项項](?:应该?)?[是为為:：]"
    r"|[选選][项項][:：]|선택[은:]|\b(?:leaves|leaving|left with|remains)\b"
)
# " clearly option "
_BEFORE_LETTER = any_case(
    r"(?:[\s:：*_`$\"'“‘「『【({\[\\]|text\{"
    r"|(?:the |an? )?(?:correct |right )?(?:option|choice|letter|answer)\b(?: is\b)?"
    r"|[选選][项項]|是|为|clearly\b|likely\b|probably\b|definitely\b|most\b|indeed\b){0,12}"
)
_NEXT = (
    r"[\s)\]*]{0,4}(?:,? (?:but )?also|as well as|,? or (?:perhaps|maybe|possibly)|,|;|/|&|、"
    r"|\b(?:and|or|y|ou?|e|et|und|oder)\b|和|与|或|及|,\s?and\b"
    r"|,\s?or\b)[\s(\[*]{0,4}(?:option "
    r"|choice )?[A-Z](?![A-Za-z0-9_'’])(?!\W{0,4}(?:is|was|would|are|does|has|shows?|can|could|in)\b"
    r"|[\s)]{0,3}(?:是|不|错|更))"
)
# "A and C"
_LETTERS = re.compile(rf"([A-Z]{{1,26}}|[a-z])(?![A-Za-z0-9_]|['’][a-z])((?:{_NEXT}){{0,25}})")
# "A dog": the letter is an article
_IS_ARTICLE = re.compile(
    r"[Aa]\s(?!(?:because|since|as|for|due|given|and|but|while|which|where|not|rather|unlike|would|is|are"
    r"|in)\b)[a-z]"
)
# "rather than "
_REJECTING = any_case(
    rf"(?:{NEGATION}|\bthan\b)"
    r"[\s,:*_]{0,3}(?:think |believe |say |answer )?(?:(?:be|is|choose|pick|select|la|el|选择?|that it is"
    r"|it is"
    r"|it's)\s{0,2})?"
)
_ONE_LETTER = r"(?:options? |choices? |opci[oó]n |[选選][项項])?[(\[*]{0,3}[A-Z](?![A-Za-z0-9_'’])[)\]*]{0,3}"
_LETTER_LIST = (
    rf"{_ONE_LETTER}(?:\s?(?:,|、|和|与|或|\band\b|\bor\b|,\s?and\b|\bnor\b)\s?{_ONE_LETTER}"
    r"(?!\s(?:is|shows?|fits?|matches|has|was|would|must|seems)\b)){0,9}"
)
# "rather than B or C"
_REJECTED = re.compile(
    rf"(?:(?i:{_REJECTING.pattern})|\bover\s){_LETTER_LIST}(?!\s(?:is|are) (?:wrong|incorrect))"
)
# "A and B are wrong"
_WRONG = re.compile(
    rf"{_LETTER_LIST}\s{{0,2}}(?:[选選][項项])?(?i:(?:is|are|was|were|do|does|can|could|should|would|must)"
    r"(?:n['’]t\b| not\b)|cannot\b|(?:is|are|was|were|seems?|looks?|appears?) (?:both |all |clearly "
    r"|obviously |definitely )?"
    r"(?:an? |the )?(?:wrong|incorrect|false|distractor|excluded|eliminated|ruled out|out\b|unlikely|a"
    r" trap|implausible"
    r"|impossible|invalid)"
    r"|is [^.\n]{0,24}\b(?:rule out|eliminate|exclude|discard|reject)\b"
    r"|(?:can|could|should|must|may|has to|have to) be (?:ruled out|eliminated|excluded|discarded|rejected)"
    rf"|都?(?:可?以?排除|不符)|以外|除外|{REJECTED.pattern})"
)
# "the options include C. Paris": the question again
_ECHOED = any_case(
    r"\bbetween (?:options? )?[A-Z] and [A-Z],|\bnone of the (?:options|choices|answers)\b[^\n.]*"
    r"|\b(?:options|choices)(?: given| listed"
    r"| shown)? include\b[^\n]*"
    r"|\b([A-Z]) or (?:not \1|whatever|something)\b"
    r"|\b(?:wrong|incorrect|false) (?:answer|option|choice)s? (?:is|are|would be)\b[^.\n]{0,40}"
    r"|(?<![^\n])[^\n✓✔✅]*(?:[✗✘❌]|[:：–—-]\W{0,4}(?:incorrect|wrong|false|错误|不正确|不符合?)\W{0,4}(?=\n"
    r"|\Z))[^\n]*"
    r"|(?<![A-Za-z])[A-Z]\s?(?:[✗✘❌×]|\((?:wrong|incorrect|false|no)\)|(?:→|[:：] ?)\s?no\W{0,3}(?=\n|\Z"
    r"|\b[A-Z]:))"
)
# " and ": between options that are chosen together
_BETWEEN = re.compile(r"\s{0,4}(?:,\s?and\b|[,;、&\n]|\band\b|和|及)\s{0,4}")
# "B is correct"
_IS_RIGHT = re.compile(
    r"(?<![A-Za-z0-9'’])(?<!\bor )(?:[选選][项項])?([A-Z])[)\]*.\s]{0,4}(?:[选選][项項])?(?:(?:is"
    r"|must be|would be"
    r"|seems|appears|looks)(?: clearly| definitely| most likely| probably)? (?:to be )?(?:the )?(?:only "
    r"|most |best |single )?(?:correct|right|best|true|accurate|appropriate|answer|choice|option"
    r"|one (?:that|which))\b|\sfits (?:better|best)\b|(?:是|为"
    r"|が|가)?(?:正确|正確|正解|对的|정답)|[:：–—-]\W{0,4}(?:correct|right|true|yes|对)(?![A-Za-z])|\W{0,4}[✓✔✅√])"
    r"|(?:(?<=\n)|\A)\W{0,4}([A-Z])[.):][^\n]{1,80}\W\s?(?:correct|right|true|yes|[✓✔✅√对])\W{0,4}(?=\n|\Z)"
)
# "so it must be B."
_CLOSING = any_case(
    r"(?:\b(?:so|thus|therefore|hence|then|it's|it is|is|be|makes? it|points? to)|所以|因此|故|即|→|=>"
    r"|=)[\s,，:：]{0,4}(?:it is "
    r"|it's |it must be |option |actually |really |in fact"
    r" )?[\s(\[*\"'“]{0,4}([A-Za-z])[\s)\]*\"'”.。!]{0,6}\Z"
)
# "B, because"
_OPENING = re.compile(
    r"\W{0,4}([A-Z])[\s)\]*]{0,4}(?:[,，;!](?!\s{0,2}(?:but |and |or )?(?:also |perhaps |maybe "
    r"|possibly )?\(?[A-Z]\b(?! is| are|"
    r" shows))|\n|\s(?:because"
    r"|since|as|for|due"
    r"|given)\b|因为|[。](?=.))"
)
_CAPITAL = (
    r"(?<![A-Za-z0-9_'’.])([B-HJ-Z](?!\s+or\s+not)|A(?!\s(?!and\b|or\b)[a-z]))"
    r"(?![A-Za-z0-9_'’]|-[a-z]|\.[A-Za-z0-9])"
)
# Where a letter is chosen: behind a sign or words that lead to it, unless it is but described ("option B is
# about a cat"), or before words that say that it is right ("only B fits").
# "which matches choice B"
_PLACED = re.compile(
    r"(?:(?:\A|[\n.,;:!|/&—–→>=-]|[^\x00-\x7f]|\b(?i:options?|choices?|letters?|answers?|antwort|opci[oó]n|opção"
    r"|letra"
    r"|lettera|scelta|elimination|either|between|of|also|only|both|be|is|are|it['’]s|that['’]s|gives?"
    r"|obtain|get"
    r"|(?:match|correspond|lead|point|come|fit)\w{0,3}(?: to| with| down to)?|leaves? us with|so|therefore"
    r"|(?:vot|pick|choos|select|lean|opt|go)(?:e|ed|ing)?(?: for| with| to| towards?)?"
    r"|thus|hence|but|and|or|without a doubt|\w{2,12}ly|la|el|ist|est|è|é|es|ans|conclude that"
    r"|means?))\W{0,6}|\w[*\s]{0,3}\((?i:option |choice |letter )?)"
    rf"{_CAPITAL}(?=\)\s|[)}}\]*\s\"'”]{{0,5}}(?:\Z|[^\x00-\x7f]|[,.;:!?|/&\n(=>-]|(?:because|since|as|for"
    rf"|due"
    rf"|given|and"
    r"|or|but|while|which|y|ou?|e|et|und|oder|here|also|in|with|on the|it is|by|rather|instead|not)\b))"
    rf"|{_CAPITAL}(?=\W{{0,4}}(?:(?:best|also|clearly|both|all) )?(?:fits?\b|remains?\b|(?:must|should"
    rf"|has to) be (?:chosen|selected|picked|the|right|correct)|match|holds?\b"
    rf"|wins?\b|works?\b"
    r"|describ|mention|shows?\b|correspond|satisf|agree|appl(?:y|ies)|it is\b|are visible|makes?\b"
    r"|stands? out\b|(?:is|are)"
    r" (?:it\b|what|exactly|the (?:one|only|most|best)|most|best|correct|right|true))|\W{0,6}[^\x00-\x7f])"
)


# "is not"
_DENYING = any_case(r"\b(?:not?|neither|nor|none|never|cannot|without)\b|n['’]t\b")
# "none of the above"
_NONE_OF = re.compile(r"none of (?:the |these )?\w{0,12}\Z")
# "the dog"
_ARTICLE = re.compile(r"\A(?:an?|the) (?!and\b|or\b)(?=\w{3})")

_PLACES = by_word(OPTIONS.places)
# "the second option"
_COUNTED = any_case(
    r"\b(?:(?<!my )(first|second|third|fourth|fifth) (?:option|choice|answer)"
    r"|(?:option|choice) ([1-5]|one|two|three|four|five)(?!\.\d))\b|第([一二三四五])[个個]?[选選][项項]"
    r"|(?:(?<=\bis )|(?<=\bchoose )|(?<=\bpick )|\A)the (first|second|third|fourth|fifth) one(?=[.!]?\Z)"
)


def plain(text: str) -> str:
    """Text of an option for comparison: case, width and outer punctuation do not matter."""
    bare = without_latex(normalise_short(text)).casefold().strip(" .,;:!。，；：！()[]")
    return _ARTICLE.sub("", bare)


def stated_options(completion: str, options: Options) -> Letters:
    """The letters of the options that a completion chooses; empty if it chooses none."""
    text = short_answer(completion)
    if text and not any(option[:1].isdigit() or option.endswith(" one") for option in options.values()):
        text = _COUNTED.sub(_as_letter, text)
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
    for pattern, typed in WRITING.typed:
        text = re.sub(pattern, typed, text)
    return text


def _without_rejected(text: str, options: Options) -> str:
    """The text without what it compares its answer with: "rather than C", "all except B", "not green"."""
    text = _WRONG.sub(" ", _REJECTED.sub(" ", _ECHOED.sub(" ", text)))
    texts = sorted(filter(_is_named, options.values()), key=len, reverse=True)
    option = rf"(?:the |an? )?(?:{'|'.join(map(re.escape, texts)) or '(?!)'})"
    rejected = (
        rf"(?:(?:{_REJECTING.pattern})(?:\w{{2,12}}ing )?|\bno ){option}"
        rf"(?:(?:,|,?\s(?:nor|or|and))\s{option}){{0,9}}(?!\w)(?:\s?\((?:option )?[A-Z]\))?"
    )
    wrong = f"{option}{REJECTED.pattern}"
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
    pieces = [LEADING.match(piece) for piece in _BETWEEN.split(text.strip(" .。*"))]
    named = {(piece[1] or piece[2]).upper(): plain(piece.string[piece.end() :]) for piece in pieces if piece}
    if len(named) == len(pieces) > 1 and named.items() <= options.items():
        return frozenset(named)
    if _SEVERAL.match(text):
        return frozenset(letter.upper() for letter in _SINGLE.findall(text))
    return frozenset(text) if _RUN.match(text) and len(set(text)) == len(text) else None


def _led_by(text: str, options: Options) -> Letters | None:
    """ "B. a dog", or a list of such lines; nothing if a letter stands before another one or its text."""
    if not LEADING.match(text):
        return None
    possible = _letters_of(options)
    lines = [line for line in map(str.strip, text.split("\n", len(possible))) if line]
    listed = all(map(LEADING.match, lines)) and (len(lines) == len(possible) or not _EXPLAINED.search(text))
    letters: set[str] = set()
    for leading in filter(None, map(LEADING.match, lines if listed else [text])):
        letter = (leading[1] or leading[2]).upper()
        rest = leading.string[leading.end() :].partition("\n")[0]
        marks = [*_MARK.finditer(_EXPLAINED.split(rest, maxsplit=1)[0])]
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
    for label in _CHOSEN.finditer(text):
        if (letters := _after(text, label.end(), options)) is not None:
            announced.append((*label.span(), letters))
    for right in _IS_RIGHT.finditer(text):
        if letters := possible & {right[1], right[2]}:
            announced.append((*right.span(), letters))
    return last_statement(announced, text, frozenset()) if announced else None


def _after(text: str, start: int, options: Options) -> Letters | None:
    """The option, or the letters, that a text names from here on; None if it names none at once."""
    if skipped := _BEFORE_LETTER.match(text, start):
        start = skipped.end()
    if fitting := _beginning(text[start : start + 400], options):
        return frozenset(fitting[:1])
    match = _LETTERS.match(text, start)
    if match is None or _IS_ARTICLE.match(text, start):
        return None
    line = text[start : start + 80].partition("\n")[0].rstrip(" .。!*")
    if _SEVERAL.match(line):
        return frozenset(letter.upper() for letter in _SINGLE.findall(line))
    letters = frozenset({*match[1].upper(), *_SINGLE.findall(match[2])})
    rest = text[match.end() : match.end() + 400].partition("\n")[0]
    return frozenset() if len(letters) == 1 and _contradicts(rest, min(letters), options) else letters


def _implied(text: str, options: Options) -> Letters | None:
    """A letter in the last words, in the first, or the only one at all."""
    possible = _letters_of(options)
    last = text.rstrip().rpartition("\n")[2]
    for match in (_CLOSING.search(text[-64:]), _ALONE.match(last.strip(' *`#"')), _OPENING.match(text)):
        if match and match[1].upper() in possible:
            return frozenset(match[1].upper())
    return possible & {letter for match in _PLACED.finditer(text) for letter in match.groups()} or None


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
    if len(touched) != 1 or _DENYING.search(text):
        return None
    return frozenset(touched) if of_option[touched[0]] <= words else None


def _is_named(option: str) -> bool:
    """Whether an option's text is no mere letter or sign, and can be looked for."""
    return len(option) > 1 or option.isdigit()


def _whole(text: str, start: int, option: str) -> bool:
    """Whether an option's text stands there as words of its own, as far as its script has words."""
    around = text[max(0, start - 1) : start] + text[start + len(option) : start + len(option) + 1]
    return not (option[0] + option[-1]).isascii() or not re.search(r"[A-Za-z0-9/-]", around)
