"""Whether a text says yes or no."""

import re

from swift_grpo_ext.rewards.reading.statement import UNSURE, Statement, labels, last_statement
from swift_grpo_ext.rewards.reading.words import POLARITY, by_word

_POLARITY = {word: meaning == "yes" for word, meaning in by_word(POLARITY.words).items()}


_ALONE = {"y": True, "n": False, "1": True, "0": False}


_ANY = "|".join(map(re.escape, sorted(_POLARITY, key=len, reverse=True)))


_FIRST = re.compile(rf"({_ANY})(?![^\W_])")


_CLAIM = (
    r"(?:statement|claim|sentence|assertion|description|caption|hypothesis|premise|proposition|it|this|that"
    r"|which)(?: above| given| made)?"
)


_JUDGED = re.compile(
    rf"\b{_CLAIM}(?:['’]s|\s(?:is|was|would be|must be|appears to be|seems to be|seems))"
    r"( not|n't|n’t)?"
    r"(?: indeed| clearly| therefore| actually| completely| entirely| thus)?\W{1,4}"
    r"(?:(true|correct|accurate|valid|supported|right(?! (?:next|behind|there|in|on|at|of|side|hand"
    r"|above|below|under|now|beside)\b))|false|incorrect|wrong|inaccurate|untrue|invalid|not)\b"
    r"|(?:说法|陈述|描述|判断|命题|论断|这句话|观点|结论)(?:应该|应)?(?:是|为)?(?:(正确|对|真|成立|属实)"
    r"|错|不正确|不对|假|不成立|不属实)"
)


_SKIPPED = re.compile(
    r"(?:[\s:：*_`$\"'“‘「『(\[{\\]|text\{|是|为|a |that |clearly |definitely |simply |still "
    r"|therefore ){0,12}"
)


_CLOSING = re.compile(
    rf"(?:\b(?:so|thus|therefore|hence|then|and so)|所以|因此|故"
    rf"|综上)[\s,，:*]{{0,4}}({_ANY})[\s*.。!\"”]{{0,6}}\Z"
)


_ASIDE = re.compile(rf"(?:^|[,，.。:;!—–\n])[\s*_]{{0,4}}({_ANY})[\s*_]{{0,4}}(?=[,，.。:;!—–\n]|\Z)")


_EXISTS = re.compile(
    r"\bthere(?:'s| is| are| was| were| exists?| appears to be| seems to be)( (?:definitely |clearly "
    r"|actually |indeed )?(?:no\b|not\b|none|nothing|nobody|never)|n't|n’t| no-one| zero\b)?|(?:图|图片|图像"
    r"|画面|照片|图中|视频)(?:片|像)?(?:中|里|上|内)?[^,，。;]{0,12}?(?:(没有|不存在|没|未见|看不到"
    r"|并无|未)|确实有|存在|有)"
)


_NEGATED = re.compile(
    r"\b(?:is|are|was|were|does|do|did|has|have|had|can|could|will|would)(?: not\b|n't\b|n’t\b)|\b(?:cannot"
    r"|neither|none of|nothing (?:like|of|in|is)|no (?:such )?(?:visible|sign|evidence|indication))\b|没有"
    r"|不存在|不是|并非|并不|看不到|不能|ありません|いません|ない。|없습니다|아닙니다"
)


_DOUBLE = re.compile(
    r"(?:\bnot|n['’]t)(?: \w{1,12})? (?:without|lacking|devoid of|free of|absent|missing)\b"
    r"|(?:不是|并非|不会)(?:没有|没|不存在|无)"
)


def leading_polarity(text: str) -> list[bool | None]:
    """The polarity of the first word, if it has one; None if the opposite follows at once ("yes or no")."""
    if (word := _FIRST.match(text)) is None:
        return []
    polarity, rest = _POLARITY[word[1]], text[word.end() :]
    second = _FIRST.match(rest.lstrip(" ,/|;&、([*?？").removeprefix("or ").removeprefix("and ").lstrip())
    return [None if second and _POLARITY[second[1]] is not polarity else polarity]


def parse_yes_no(text: str) -> bool | None:
    """The polarity that a text states; None if it states none, or contradicts itself."""
    plain = text.casefold().strip()
    if plain.strip(" .") in _ALONE:
        return _ALONE[plain.strip(" .")]
    leading = leading_polarity(plain.lstrip(" ([{*\"'“「"))
    if leading == [None]:
        return None
    if found := [*((0, 1, polarity) for polarity in leading), *_stated(plain)]:
        return last_statement(found, plain, None)
    if polarities := {_POLARITY[match[1]] for match in _ASIDE.finditer(plain)}:
        return polarities.pop() if len(polarities) == 1 else None
    return None if UNSURE.search(plain) else _asserted(plain)


def _stated(plain: str) -> list[Statement[bool | None]]:
    found: list[Statement[bool | None]] = []
    for label in labels(plain):
        start = _SKIPPED.match(plain, label.end())
        leading = leading_polarity(plain[start.end() if start else label.end() :][:80])
        found += [(*label.span(), polarity) for polarity in leading]
    for judged in _JUDGED.finditer(plain):
        found.append((*judged.span(), bool(judged[2] or judged[3]) is not bool(judged[1])))
    if closing := _CLOSING.search(plain):
        found.append((*closing.span(), _POLARITY[closing[1]]))
    return found


def _asserted(plain: str) -> bool | None:
    """What a text without yes or no says: that there is something, or that something is not so."""
    plain, doubled = _DOUBLE.subn(" ", plain)
    said = {True} if doubled else set()
    said |= {not any(match.groups()) for match in _EXISTS.finditer(plain)}
    if not said and _NEGATED.search(plain):
        said = {False}
    return said.pop() if len(said) == 1 else None
