"""Whether a text says yes or no."""

import re

from swift_grpo_ext.rewards.reading.answer import short_answer
from swift_grpo_ext.rewards.reading.assertion import stated
from swift_grpo_ext.rewards.reading.doubt import REJECTED, refuses
from swift_grpo_ext.rewards.reading.statement import UNSURE, Statement, labels, last_statement
from swift_grpo_ext.rewards.reading.tokens import named_by
from swift_grpo_ext.rewards.reading.words import POLARITY, by_word

_POLARITY = {word: meaning == "yes" for word, meaning in by_word(POLARITY.words).items()}


_ALONE = {"y": True, "n": False, "1": True, "0": False}


_ANY = "|".join(map(re.escape, sorted(_POLARITY, key=len, reverse=True)))


# "yes"
_FIRST = re.compile(rf"({_ANY})(?![^\W_]|-\w)")


_CLAIM = (
    r"(?:statement|claim|sentence|assertion|description|caption|hypothesis|premise|proposition|it|this|that"
    r"|which|you)(?: above| given| made)?"
)


# "the statement is false"
_JUDGED = re.compile(
    rf"\b{_CLAIM}(?:['’](?:s|re)|\s(?:is|are|was|would be|must be|appears to be|seems to be|seems))"
    r"( not|n't|n’t)?"
    r"(?: indeed| clearly| therefore| actually| completely| entirely| thus)?\W{1,4}"
    r"(?:(true|correct|accurate|valid|supported|right(?! (?:next|behind|there|in|on|at|of|side|hand"
    r"|above|below|under|now|beside)\b))|(?:false|incorrect|wrong|inaccurate|untrue|invalid)\b|not\W*\Z)"
    r"|(?:说法|陈述|描述|判断|命题|论断|这句话|观点|结论)(?:应该|应)?(?:是|为)?(?:(正确|对|真|成立|属实)"
    r"|错|不正确|不对|假|不成立|不属实)"
)


# " clearly "
_SKIPPED = re.compile(
    r"(?:[\s:：*_`$\"'“‘「『(\[{\\]|text\{|是|为|a |that |clearly |definitely |simply |still "
    r"|therefore ){0,12}"
)


# "so, no."
_ASIDE = re.compile(
    rf"(?:^|[,，.。:;!—–\n]|\b(?:so|thus|therefore|hence|then|actually|(?<!anything )but)\b|所以|因此|故"
    rf"|综上)[\s*_,，:]{{0,4}}({_ANY})[\s*_]{{0,4}}"
    r"(?=[,，.。:;!—–\n]|\Z)"
)


# "there is no"
_EXISTS = re.compile(
    r"\bthere(?:'s| is| are| was| were| exists?| appears to be| seems to be)( (?:definitely |clearly "
    r"|actually |indeed )?(?:no\b|not\b|none|nothing|nobody|never)|n't|n’t| no-one| zero\b)?|(?:图|图片|图像"
    r"|画面|照片|图中|视频)(?:片|像)?(?:中|里|上|内)?[^,，。;]{0,12}?(?:(没有|不存在|没|未见|看不到"
    r"|并无|未)|确实有|存在|有)"
)


_LACKING = "lack(?:s|ing)?|devoid of|free of|absent|missing"

# "is not"
_NEGATED = re.compile(
    r"\bnot\b(?! (?:only|just|to mention)\b)|n['’]t\b|\b(?:cannot|never|neither(?! \w{1,20} nor)"
    r"|zero(?= [a-z])"
    r"|none of|nobody"
    r"|(?<!\ba )no(?= [a-z])(?! (?:doubt|matter|problem|wonder|worries|harm|need|way)\b)"
    r"|(?<=\w )nothing(?! but)"
    r"|nothing (?:like|of|in|is)"
    rf"|without(?! (?:a |any )?doubt)|{_LACKING})\b"
    r"|没(?!错|问题)|不(?![仅过同少错久断管论只但得])|并非|ありません|いません|ない。|없습니다|아닙니다"
)


# "looking at the image, "
_LEAD = re.compile(
    r"\A(?:(?:in|on|from|at|based on|looking at) (?:the|this) [\w ]{1,24}, "
    r"|(?!no\b|yes\b)[^.!?\n]{1,80}?(?:, but|; however,?|, so)\s*(?=the |it |there |he |she |they )"
    r"|(?:so|therefore|thus|hence|clearly|obviously|overall|in (?:conclusion|summary|short)"
    r"|after \w{3,12}ing),? "
    r"(?=the |it |there |he |she |they )"
    r"|(?:there(?: is|['’]s)|i have|it is) (?:no (?:doubt|question)|not hard to see) that )"
)
# "the man is wearing a hat.": one short sentence, as good a yes as its negation is a no
_PLAIN = re.compile(
    r"(?!.{0,80}\b(?:answer|question|option|or)\b)(?:the|an?|it|he|she|they|this|that|these|those|both"
    r"|all|i|we|his|her|its|their|in the"
    r"|on the|you|one|two|three|some|several|many|people)\b['’\w -]{0,40}?"
    r"(?:\b(?:is|are|was|were|has|have|had|does|do|can|could|will|match|matches|wears?|shows?|contains?"
    r"|looks?|holds?|says?|reads?|states?|appears?|seems?)\b"
    r"|['’](?:s|re)\b)[^.!?。\n]{0,60}[.!]?"
    r"|[^不没無无否非未,，。？吗]{1,12}(?:是|在|有|正|着|能|会)[^不没無无否非未吗，。]{1,12}[。.!]?"
)

# "not without"
_DOUBLE = re.compile(
    rf"(?:\bnot|n['’]t)(?: \w{{1,12}})? (?:without|{_LACKING})\b"
    r"|(?:不是|并非|不会)(?:没有|没|不存在|无)"
)


# "- ": before the first word, as in "1. yes", "#### yes"
_MARKS = re.compile(r"(?:[^\w.?!\d]{1,16}|\d{1,2}[.)]\s){0,4}")
# "i think yes", "looks like no", "verdict: yes"
_OPINION = re.compile(
    r"(?:(?:i|we) (?:would |['’]d )?(?:think|believe|guess|suppose|say|assume)|i['’]d say"
    r"|it(?:['’]s| is) an?"
    r"|(?:it )?(?:looks|seems) like|(?:most |very )?(?:probably|likely)|so|therefore|thus|hence|sure"
    r"|(?:short |my |the |final |in short, )?(?:verdict|answer|result|conclusion)(?: is)?|我认为"
    r"|我觉得|我想|应该)"
    r"[\s,:：!.]{0,3}(?:that |an? )?(?=\S)"
)
# "so": as in "i think so", "i think not"
_OPPOSED = re.compile(r"(?:not|(so))\W{0,4}\Z")  # "i think not", "i think so"
# ", or maybe ": between the two words of a hedge
_JOINT = re.compile(
    r"(?:[ …,/|;&、(\[*?？\"“”']|\.{2,4}|(?:or|and|also|maybe|perhaps|probably|possibly|y|o|u|et|ou|und"
    r"|oder)\b"
    r"|または|或者?|还是){0,12}"
)
# "no idea", "no image": the word is part of something else
_NO_THING = re.compile(
    r"no (?:problem|idea|clue|worr(?:y|ies)|harm|need|way|wonder|matter|telling|time|chance to|hurry|rush"
    r"|thanks|offen[cs]e"
    r"|pressure|hard feelings|further|more|longer|sooner)\b|no\. ?\d"
)
# "no, i cannot see it": the word stands by itself
_COMMA = re.compile(r"\W*no(?:pe)?\W*[,.;:\n]")
# "yes and no"
_BOTH = re.compile(r"\byes\b[^.\n]{0,16}\bno\b|\bno\b[^.\n]{0,16}\byes\b")
# "the answer is not no"
_DENIED = re.compile(
    r"\b(?:not|\w{2,5}n['’]t) (?:say |answer |be )?(?:an? )?(?:yes|no)\W{0,4}\Z"
    rf"|\A\W{{0,4}}(?:yes|no)(?:{REJECTED.pattern})"
)
# ", although it is not easy to see"
_CONCEDED = re.compile(
    r",?\s?\b(?:although|though|even though|even if)\b[^,.;\n]*|,?虽然[^，,。\n]*"
    r"|(?<=[.!])\s*(?:i hope|let me know|is there anything|i am (?:certain|sure)|feel free)\b[^\n]*\Z"
)
# "yes, the car is red": a yes or a no, and the sentence behind it
_SAID = re.compile(
    r"(?:(yes|yeah|yep|是的|有)|(no|nope|不是?|没有))[,.;:!，。；][\s*]{0,4}([^,.;!?，。；\n]{4,80})[.。!]?\Z"
)
# " that there is no dog": what is said to be true or false
_THAT = re.compile(r"\s?that ([^.!?\n]{4,120})")
# "i can't be sure"
_NOT_SURE = re.compile(
    r"\bi(?: cannot| can['’]t| can not) be (?:sure|certain)|\bi(?:['’]m"
    r"| am) (?:really )?not (?:really )?sure\b"
)
# "it depends"
_NEITHER = re.compile(
    r"(?:it is |it's )?either yes or no|neither(?: yes)?(?: nor no)?\W*\Z|it depends|not (?:a )?yes\b"
    r"|(?:yes|no) if\b(?! you)|(?:yes|no),? (?:if"
    r"|when)\b[^.\n]{0,200}\b(?:yes|no)\b"
)


def leading_polarity(text: str) -> list[bool | None]:
    """The polarity of the first word, if it has one; None if the opposite follows at once ("yes or no")."""
    text = _MARKS.sub("", text, count=1)
    if opinion := _OPINION.match(text):
        text = text[opinion.end() :]
        if short := _OPPOSED.match(text):
            return [short[1] is not None]
    if (word := _FIRST.match(text)) is None or _NO_THING.match(text):
        return []
    polarity = _POLARITY[word[1]]
    second = _FIRST.match(_JOINT.sub("", text[word.end() :], count=1))
    return [None if second and _POLARITY[second[1]] is not polarity else polarity]


def stated_polarity(completion: str, topic: frozenset[str] = frozenset()) -> bool | None:
    """The polarity that a completion states; None if it states none, asks, refuses, or contradicts itself.

    A plain statement of something else than what is asked (its words) is no yes.
    """
    answer = (short_answer(completion) or "").casefold().strip()
    return stated(
        answer, lambda text: _polarity(_LEAD.sub("", _CONCEDED.sub("", text)).strip(), topic), refusals=True
    )


def _polarity(plain: str, topic: frozenset[str]) -> bool | None:
    """The polarity that a text without concessions states."""
    if plain.strip(" .") in _ALONE:
        return _ALONE[plain.strip(" .")]
    refused = refuses(plain)
    leading = leading_polarity(plain)
    if (
        _NEITHER.match(plain)
        or _NOT_SURE.search(plain)
        or _DENIED.search(plain)
        or (not leading and _BOTH.search(plain))
    ):
        return None
    if refused and not (_COMMA.match(plain) if leading == [False] else leading or labels(plain)):
        return None
    if _contradicts_itself(plain, topic):
        return None
    if statements := _statements(plain, leading, topic):
        return last_statement(statements, plain, None)
    return None if refused or UNSURE.search(plain) else _described(plain, topic)


def _contradicts_itself(plain: str, topic: frozenset[str]) -> bool:
    """Whether a yes or no is followed by a sentence of the question's own words that says the opposite."""
    if not (said := _SAID.match(plain)) or topic & named_by("true correct statement claim"):
        return False
    names = named_by(said[3])
    covers = names and names <= topic and (said[1] or len(topic - names) <= 1)
    return _described(said[3], topic) is (said[1] is None) if covers else False


def _statements(
    plain: str, leading: list[bool | None], topic: frozenset[str]
) -> list[Statement[bool | None]]:
    """What a text says first, announces, says of a claim, and at its end; else its words by themselves."""
    statements: list[Statement[bool | None]] = [(0, 1, polarity) for polarity in leading]
    for label in labels(plain):
        words = _SKIPPED.sub("", plain[label.end() :][:160], count=1)
        statements += [(*label.span(), polarity) for polarity in leading_polarity(words[:80])]
    for judged in _JUDGED.finditer(plain):
        holds: bool | None = bool(judged[2] or judged[3]) is not bool(judged[1])
        if claim := _THAT.match(plain, judged.end()):
            of_claim = _described(claim[1], topic)
            holds = of_claim if holds or of_claim is None else not of_claim
        statements.append((*judged.span(), holds))
    asides: list[Statement[bool | None]] = [
        (*aside.span(), _POLARITY[aside[1]]) for aside in _ASIDE.finditer(plain)
    ]
    closing = [aside for aside in asides if not plain[aside[1] :].strip(" .!*。！")]
    return (statements + closing) or asides


def _described(plain: str, topic: frozenset[str]) -> bool | None:
    """What a text without yes or no says: that there is something, or that something is not so."""
    names = named_by(plain)
    another = plain.isascii() and names - topic and topic - names  # the light is red, and not green
    plain, doubled = _DOUBLE.subn(" ", plain)
    polarities = {not any(match.groups()) for match in _EXISTS.finditer(plain)}
    if doubled:
        polarities.add(True)
    if not polarities:
        polarities = {False} if _NEGATED.search(plain) else {True} if _PLAIN.fullmatch(plain) else set()
    return polarities.pop() if len(polarities) == 1 and not (polarities == {True} and another) else None
