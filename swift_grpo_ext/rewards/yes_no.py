"""Yes or no."""

from __future__ import annotations

import re

from swift_grpo_ext.rewards.answer import normalise_short, short_answer
from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold import gold_value
from swift_grpo_ext.rewards.statement import UNSURE, Statement, labels, last_statement

GOLD = ("solution", "answer")

_WORDS = {
    True: "yes yeah yep yup true correct right affirmative indeed certainly definitely absolutely sure"
    " of_course no_doubt without_doubt without_a_doubt"
    " 当然可以 当然有 当然是 当然会 当然能 是有的 的确有 的确是 确实有"
    " 是 是的 是啊 对 对的 正确 正确的 没错 肯定 肯定的 有 有的 存在 存在的 可以 可以的 能 能够 会 会的 真"
    " 确实 确实是 确实如此 的确 当然 属实 嗯 oui vrai sí si sim ja richtig wahr verdadero да верно نعم"
    " はい うん 正しい そうです 네 예 맞습니다 맞아요",
    False: "no nope nah false incorrect wrong negative never not_at_all"
    " not_really of_course_not certainly_not definitely_not absolutely_not probably_not clearly_not"
    " 当然不 当然没有"
    " 否 否定 否定的 不 不是 不是的 不对 不对的 错误 错误的 错 错的 没有 没有的 没 无 不存在 不存在的 不可以"
    " 不可以的 不能 不会 不会的 不行 不正确 不正确的 并非 并非如此 并不是 并没有 假 假的 non faux nein falsch"
    " não нет неверно لا いいえ いや 違います ありません 아니요 아니오 아닙니다 없습니다",
}
_POLARITY = {word.replace("_", " "): polarity for polarity, words in _WORDS.items() for word in words.split()}
_ALONE = {"y": True, "n": False, "1": True, "0": False}
_LONGEST_FIRST = sorted(_POLARITY, key=len, reverse=True)
_ANY = "|".join(map(re.escape, _LONGEST_FIRST))
_CLAIM = (
    r"(?:statement|claim|sentence|assertion|description|caption|hypothesis|premise|proposition|it|this"
    r"|that|which)"
    r"(?: above| given| made)?"
)
_JUDGED = re.compile(
    rf"\b{_CLAIM}(?:['’]s|\s(?:is|was|would be|must be|appears to be|seems to be|seems))"
    r"(?P<not> not|n't|n’t)?"
    r"(?: indeed| clearly| therefore| actually| completely| entirely| thus)?\W{1,4}"
    r"(?:(?P<yes>true|correct|accurate|valid|supported|right(?! (?:next|behind|there|in|on|at|of|side|hand"
    r"|above|below|under|now|beside)\b))|(?P<no>false|incorrect|wrong|inaccurate"
    r"|untrue|invalid|not))\b"
    r"|(?:说法|陈述|描述|判断|命题|论断|这句话|观点|结论)(?:应该|应)?(?:是|为)?(?:(?P<真>正确|对|真|成立"
    r"|属实)|(?P<假>错|不正确|不对|假|不成立|不属实))"
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
    r"\bthere(?:'s| is| are| was| were| exists?| appears to be| seems to be)(?P<none> (?:definitely "
    r"|clearly |actually |indeed )?"
    r"(?:no\b|not\b|none|nothing|nobody|never)|n't|n’t| no-one| zero\b)?"
    r"|(?:图|图片|图像|画面|照片|图中|视频)(?:片|像)?(?:中|里|上|内)?[^,，。;]{0,12}?(?:(?P<无>没有"
    r"|不存在|没|未见|看不到|并无|未)|(?P<有>确实有|存在|有))"
)
_NEGATED = re.compile(
    r"\b(?:is|are|was|were|does|do|did|has|have|had|can|could|will|would)(?: not\b|n't\b|n’t\b)"
    r"|\b(?:cannot|neither|none of|nothing (?:like|of|in|is)|no (?:such )?"
    r"(?:visible|sign|evidence|indication))\b|没有|不存在|不是|并非|并不|看不到|不能|ありません|いません"
    r"|ない。|없습니다|아닙니다"
)


def leading_polarity(text: str) -> bool | None:
    """The polarity of the text's first word; None if it has none, or if the opposite follows at once."""
    polarity, rest = _first_word(text.casefold().lstrip(" ([{*\"'“「:：\n"))
    return None if polarity is None or _turns(rest, polarity) else polarity


def _turns(rest: str, polarity: bool) -> bool:
    """Whether the opposite follows at once: "yes or no"."""
    following = rest.lstrip(" ,/|;&、([*?？").removeprefix("or ").removeprefix("and ").lstrip()
    return _first_word(following)[0] is (not polarity)


def _first_word(text: str) -> tuple[bool | None, str]:
    for word in _LONGEST_FIRST:
        if text.startswith(word):
            rest = text[len(word) :]
            if not rest[:1].isalnum():
                return _POLARITY[word], rest
    return None, text


def parse_yes_no(text: str) -> bool | None:
    """The polarity that a text states; None if it states none, or contradicts itself."""
    plain = text.casefold().strip()
    if plain.strip(" .") in _ALONE:
        return _ALONE[plain.strip(" .")]
    polarity, rest = _first_word(plain.lstrip(" ([{*\"'“「"))
    found: list[Statement[bool | None]] = []
    if polarity is not None:
        if _turns(rest, polarity):
            return None
        found.append(Statement(0, 1, polarity))
    found += _stated(plain)
    if found:
        return last_statement(found, plain, None)
    if polarities := {_POLARITY[match[1]] for match in _ASIDE.finditer(plain)}:
        return polarities.pop() if len(polarities) == 1 else None
    return None if UNSURE.search(plain) else _asserted(plain)


def _stated(plain: str) -> list[Statement[bool | None]]:
    found: list[Statement[bool | None]] = []
    for label in labels(plain):
        start = _SKIPPED.match(plain, label.end())
        polarity, rest = _first_word(plain[start.end() if start else label.end() :][:80])
        if polarity is not None:
            found.append(Statement(label.start(), label.end(), None if _turns(rest, polarity) else polarity))
    for judged in _JUDGED.finditer(plain):
        polarity = bool(judged["yes"] or judged["真"]) is not bool(judged["not"])
        found.append(Statement(judged.start(), judged.end(), polarity))
    if closing := _CLOSING.search(plain):
        found.append(Statement(closing.start(), closing.end(), _POLARITY[closing[1]]))
    return found


def _asserted(plain: str) -> bool | None:
    """What a text without yes or no says: that there is something, or that something is not so."""
    said = {not (match["none"] or match["无"]) for match in _EXISTS.finditer(plain)}
    if not said and _NEGATED.search(plain):
        said = {False}
    return said.pop() if len(said) == 1 else None


def _gold_polarity(columns: Columns) -> bool:
    gold = gold_value(columns, GOLD)
    if isinstance(gold, bool) or gold in (0, 1, "0", "1"):
        return bool(int(gold))
    polarity = leading_polarity(normalise_short(str(gold)))
    if polarity is None:
        raise Unscorable(f"gold {gold!r:.80} is neither yes nor no")
    return polarity


def _gold_yes_no_text(columns: Columns, **_: object) -> str:
    return "yes" if _gold_polarity(columns) else "no"


@reward(gold=GOLD, gold_text=_gold_yes_no_text)
def yes_no(completion: str, columns: Columns) -> float:
    """The right polarity of a yes/no question: 1 if right, else 0.

    The first word of the answer decides (yes, no, true, false, and their counterparts in Chinese, Japanese,
    Korean, Arabic, Russian and a few European languages), or what it states: "so the answer is yes", "the
    statement is false", 答案是否. Without either,"
    " "there is no dog" and 图中没有狗 are a no, "there is a dog" is a
    yes, and any other negation ("it is not red") a no. Who is not sure says neither.

    Gold:
        ``solution`` (or ``answer``): such a word, a bool, or 0 and 1.

    None:
        No gold, or a gold that is neither yes nor no.

    Rises with:
        Being right.

    Gaming:
        - "yes or no", "yes/no": the opposite word right after the first makes it no answer
          (test_hedged_yes_no).
        - A yes and a no in one answer: neither, unless the second is a conclusion or a correction
          (test_contradictions_are_no_answer).

    Source:
        Accuracy.

    Example:
        >>> from swift_grpo_ext import get_reward
        >>> get_reward("ext_yes_no")("There is no dog.", {"solution": "no"})
        1.0
    """
    gold = _gold_polarity(columns)
    text = short_answer(completion)
    return float(text is not None and parse_yes_no(text) is gold)
