"""Multiple choice, and yes or no."""

import json
import re
import string
from typing import Any, Literal

from swift_grpo_ext.rewards.answer import normalise_short, short_answer
from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold import gold_value, listed, without_array
from swift_grpo_ext.rewards.option_letters import LEADING, parse_choice, plain
from swift_grpo_ext.rewards.statement import UNSURE, Statement, labels, last_statement
from swift_grpo_ext.rewards.words import meanings

GOLD = ("solution", "answer")

_PLACES = meanings("option_places")
_COUNTED = re.compile(
    r"\b(?:(first|second|third|fourth|fifth) (?:option|choice|answer)"
    r"|(?:option|choice) ([1-5]|one|two|three|four|five)(?!\.\d))\b|第([一二三四五])[个個]?[选選][项項]"
    r"|(?:(?<=\bis )|(?<=\bchoose )|(?<=\bpick )|\A)the (first|second|third|fourth|fifth) one(?=[.!]?\Z)",
    re.IGNORECASE,
)


def _options(columns: Columns) -> dict[str, str]:
    """Letter to text of the row's options; empty if the row lists none."""
    options: Any = without_array(columns.get("options")) or without_array(columns.get("choices")) or {}
    if isinstance(options, str):
        try:
            options = listed(options) or json.loads(options)
        except ValueError:
            raise Unscorable(f"options {options!r:.80} are neither a list nor JSON") from None
    if isinstance(options, (list, tuple)):
        options = dict(zip(string.ascii_uppercase, options, strict=False))
    if not isinstance(options, dict):
        raise Unscorable(f"options {options!r:.80} are neither a list nor a mapping")
    return {
        str(letter).strip().upper(): plain(LEADING.sub("", str(text), count=1))
        for letter, text in options.items()
        if text is not None
    }


def _gold_letters(columns: Columns, options: dict[str, str]) -> frozenset[str]:
    gold = gold_value(columns, GOLD)
    parts = gold if isinstance(gold, (list, tuple)) else [gold]
    letters: set[str] = set()
    for part in parts:
        if isinstance(part, int) and not isinstance(part, bool) and 0 <= part < len(options):
            letters.add(list(options)[part])
        else:
            letters |= parse_choice(normalise_short(str(part)), options, plainly=True)
    if not letters:
        raise Unscorable(f"gold {gold!r:.80} is no option")
    return frozenset(letters)


@reward(
    gold=GOLD,
    reads=("options", "choices"),
    gold_text=lambda row, **_: ", ".join(sorted(_gold_letters(row, _options(row)))),
)
def choice(completion: str, columns: Columns, *, multiple: Literal["f1", "exact"] = "f1") -> float:
    r"""The right option of a multiple-choice question: 1 if chosen, else 0.

    The answer may be the letter in any usual form (``B``, ``(b)``, ``B.``, ``**B**``, ``\boxed{B}``, ``The
    answer is B``, ``B. a dog``), or the option's text if the row lists its options. With several gold letters
    the score is the F1 of the chosen set against the gold set.

    Args:
        multiple: With several gold letters, ``f1`` gives partial credit and ``exact`` gives none.
    Gold: ``solution`` (or ``answer``): letter, option text, 0-based index, or a list of these. ``options``
        (or ``choices``): a list in the order of the letters, or a mapping letter to text.
    None: No gold, a gold that is none of the options, or options that cannot be read.
    Rises with: The share of right letters among those chosen and of chosen letters among the right ones.
    Gaming:
        - Naming every option: a single gold needs the exact set, several are scored by F1
          (test_naming_every_option_does_not_pay).
        - Naming the options one after the other in thinking or answers: only the last answer counts
          (test_last_answer_counts).
        - A letter with another option's text: contradicts itself, 0 (test_letter_and_text_must_agree).
        - The article "A" at the start of a sentence: not the letter A (test_article_is_no_letter).
    Source: Accuracy, and the set F1 of multi-label classification.
    Example:
        >>> get_reward("ext_choice")("So the answer is (b).", {"solution": "B"})
        1.0
    """
    options = _options(columns)
    gold = _gold_letters(columns, options)
    text = short_answer(completion)
    if text and not any(option[:1].isdigit() or option.endswith(" one") for option in options.values()):
        text = _COUNTED.sub(lambda one: f"option {_PLACES[next(filter(None, one.groups())).lower()]}", text)
    chosen = parse_choice(text, options) if text else frozenset()
    if len(gold) == 1 or multiple == "exact":
        return float(chosen == gold)
    return 2 * len(chosen & gold) / (len(chosen) + len(gold))


_POLARITY = {word.replace("_", " "): meaning == "yes" for word, meaning in meanings("yes_no").items()}
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


def _leading(text: str) -> list[bool | None]:
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
    leading = _leading(plain.lstrip(" ([{*\"'“「"))
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
        leading = _leading(plain[start.end() if start else label.end() :][:80])
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


def _gold_polarity(columns: Columns) -> bool:
    gold = gold_value(columns, GOLD)
    if isinstance(gold, bool) or gold in (0, 1, "0", "1"):
        return bool(int(gold))
    leading = _leading(normalise_short(str(gold)).casefold().lstrip(" ([{*\"'“「:：\n"))
    if leading in ([], [None]):
        raise Unscorable(f"gold {gold!r:.80} is neither yes nor no")
    return leading == [True]


@reward(gold=GOLD, gold_text=lambda row, **_: "yes" if _gold_polarity(row) else "no")
def yes_no(completion: str, columns: Columns) -> float:
    """The right polarity of a yes/no question: 1 if right, else 0.

    The first word of the answer decides (yes, no, true, false, and their counterparts in Chinese, Japanese,
    Korean, Arabic, Russian and a few European languages), or what it states: "so the answer is yes", "the
    statement is false", 答案是否. Without either, "there is no dog" is a no, "there is a dog" is a
    yes, any other negation ("it is not red") a no, and a double one a yes. Who is not sure says neither.

    Gold: ``solution`` (or ``answer``): such a word, a bool, or 0 and 1.
    None: No gold, or a gold that is neither yes nor no.
    Rises with: Being right.
    Gaming:
        - "yes or no", "yes/no": the opposite word right after the first makes it no answer
          (test_hedged_yes_no).
        - A yes and a no in one answer: neither, unless the second is a conclusion or a correction
          (test_contradictions_are_no_answer).
    Source: Accuracy.
    Example:
        >>> get_reward("ext_yes_no")("There is no dog.", {"solution": "no"})
        1.0
    """
    gold = _gold_polarity(columns)
    text = short_answer(completion)
    return float(text is not None and parse_yes_no(text) is gold)
