"""Multiple choice and yes/no."""

from __future__ import annotations

import json
import re
import string
from typing import Any, Literal

from swift_grpo_ext.rewards.answer import normalise_short, short_answer
from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold import gold_value, without_array

GOLD = ("solution", "answer")

_LETTER = r"[(\[{]?([A-Za-z])[)\]}]?[.:。]?"
_ALONE = re.compile(_LETTER + r"\Z")
_LEADING = re.compile(r"(?:[(\[{]([A-Za-z])[)\]}]|([A-Z])(?:[).:、]|\s{1,4}[-–—]\s))[.:]?\s{0,8}(?=\S)")
_MARK = re.compile(r"(?:[(\[{]([A-Za-z])[)\]}]|(?<![^\W_])([A-Z])[).:、])")
_SEVERAL = re.compile(
    rf"{_LETTER}(?:\s{{0,4}}(?:,|;|/|&|、|\band\b|\bor\b|和|与|或|\s)\s{{0,4}}{_LETTER}){{1,25}}\Z"
)
_SINGLE = re.compile(r"(?<![A-Za-z0-9])[A-Za-z](?![A-Za-z0-9])")
_QUOTED = re.compile(r"[\"']([A-Za-z])[\"']")
_RUN = re.compile(r"[A-Z]{2,26}\Z")
_STATED = re.compile(
    r"(?i:\b(?:answer|option|choice)|答案|选项|选择?)\W{0,8}(?i:\bis\b|是|为|应为)?\W{0,8}(?i:\boption\b\s{1,4})?"
    r"([A-Z]{1,26})(?![A-Za-z0-9])"
)

_WORDS = {
    True: "yes yeah true correct 是 是的 对 对的 正确 有 oui sí si sim ja да نعم はい 네 예",
    False: "no nope false incorrect 否 不 不是 不对 错误 错 没有 无 non nein não нет لا いいえ 아니요 아니오",
}
_POLARITY = {word: polarity for polarity, words in _WORDS.items() for word in words.split()}
_ANSWER_IS = re.compile(
    r"\A(?:(?:the |my )?(?:final |correct )?answer(?: is\b)?|it is(?=:? (?:yes|no|true|false)\b)"
    r"|(?:最终)?答案(?:应该?)?[是为]?)[\s:*]{0,8}"
)
_LONGEST_FIRST = sorted(_POLARITY, key=len, reverse=True)


def _options(columns: Columns) -> dict[str, str]:
    """Letter to text of the row's options; empty if the row lists none."""
    options: Any = without_array(columns.get("options")) or without_array(columns.get("choices")) or {}
    if isinstance(options, str):
        try:
            options = json.loads(options)
        except ValueError:
            raise Unscorable(f"options {options!r:.80} are neither a list nor JSON") from None
    if isinstance(options, (list, tuple)):
        options = dict(zip(string.ascii_uppercase, options, strict=False))
    if not isinstance(options, dict):
        raise Unscorable(f"options {options!r:.80} are neither a list nor a mapping")
    return {
        str(letter).strip().upper(): _plain(_LEADING.sub("", str(text), count=1))
        for letter, text in options.items()
        if text is not None
    }


def _plain(text: str) -> str:
    """Text of an option for comparison: case, width and outer punctuation do not matter."""
    return normalise_short(text).casefold().strip(" .,;:!?。，；：！？()[]")


def parse_choice(text: str, options: dict[str, str]) -> frozenset[str]:
    """The letters that a text chooses; empty if it chooses none or contradicts itself.

    Args:
        text: An answer, or a gold, after `normalise_short`.
        options: Letter to text, may be empty: then letters A to Z are known, and no texts.
    """
    known = frozenset(options or string.ascii_uppercase)
    text = _QUOTED.sub(r"\1", text)
    by_text = [letter for letter, option in options.items() if option and option == _plain(text)]
    if by_text:
        return frozenset(by_text[:1])
    if alone := _ALONE.match(text):
        return known & {alone[1].upper()}
    if _SEVERAL.match(text):
        return _all_known(_letters(text), known)
    if _RUN.match(text) and len(set(text)) == len(text):
        return _all_known(set(text), known)
    if _LEADING.match(text):
        lines = [line for line in map(str.strip, text.split("\n", len(known))) if line]
        listed = all(_LEADING.match(line) for line in lines)
        letters = {_led(line, options) for line in (lines if listed else [text])}
        return _all_known(letters, known)
    stated = list(_STATED.finditer(text))
    if not stated:
        return frozenset()
    last = text[stated[-1].start(1) :].rstrip(" .。!")
    run = stated[-1][1]
    return _all_known(_letters(last) if _SEVERAL.match(last) else set(run), known)


def _letters(text: str) -> set[str]:
    return {letter.upper() for letter in _SINGLE.findall(text)}


def _all_known(letters: set[str], known: frozenset[str]) -> frozenset[str]:
    return frozenset(letters) if letters <= known else frozenset()


def _led(line: str, options: dict[str, str]) -> str:
    """The letter of "B. dog"; none if the rest names another option by its mark or by its text."""
    leading = _LEADING.match(line)
    assert leading
    letter, rest = (leading[1] or leading[2]).upper(), line[leading.end() :]
    others = {(mark[1] or mark[2]).upper() for mark in _MARK.finditer(rest)} - {letter}
    texts = {text for other, text in options.items() if other != letter}
    if alone := _ALONE.match(rest):
        others |= {alone[1].upper()} - {letter} if options.get(letter) != _plain(rest) else set()
    if others & set(options or string.ascii_uppercase) or _plain(rest) in texts:
        return ""
    return letter


def _gold_letters(columns: Columns, options: dict[str, str]) -> frozenset[str]:
    gold = gold_value(columns, GOLD)
    parts = gold if isinstance(gold, (list, tuple)) else [gold]
    letters: set[str] = set()
    for part in parts:
        if isinstance(part, int) and not isinstance(part, bool) and 0 <= part < len(options):
            letters.add(list(options)[part])
        else:
            letters |= parse_choice(normalise_short(str(part)), options)
    if not letters:
        raise Unscorable(f"gold {gold!r:.80} is no option")
    return frozenset(letters)


def _gold_choice_text(columns: Columns, **_: Any) -> str:
    return ", ".join(sorted(_gold_letters(columns, _options(columns))))


@reward(gold=GOLD, reads=("options", "choices"), gold_text=_gold_choice_text)
def choice(completion: str, columns: Columns, *, multiple: Literal["f1", "exact"] = "f1") -> float:
    r"""The right option of a multiple-choice question: 1 if chosen, else 0.

    The answer may be the letter in any usual form (``B``, ``(b)``, ``B.``, ``**B**``, ``\boxed{B}``,
    ``The answer is B``, ``B. a dog``), or the option's text if the row lists its options. With several gold
    letters the score is the F1 of the chosen set against the gold set.

    Args:
        multiple: With several gold letters, ``f1`` gives partial credit and ``exact`` gives none.

    Gold:
        ``solution`` (or ``answer``): letter, option text, 0-based index, or a list of these. ``options`` (or
        ``choices``): a list in the order of the letters, or a mapping letter to text.

    None:
        No gold, a gold that is none of the options, or options that cannot be read.

    Rises with:
        The share of right letters among those chosen and of chosen letters among the right ones.

    Gaming:
        - Naming every option: a single gold needs the exact set, several are scored by F1
          (test_naming_every_option_does_not_pay).
        - Naming the options one after the other in thinking or answers: only the last answer counts
          (test_last_answer_counts).
        - A letter with another option's text: contradicts itself, 0 (test_letter_and_text_must_agree).
        - The article "A" at the start of a sentence: not the letter A (test_article_is_no_letter).

    Frame:
        None.

    Source:
        Accuracy, and the set F1 of multi-label classification.
    """
    options = _options(columns)
    gold = _gold_letters(columns, options)
    text = short_answer(completion)
    chosen = parse_choice(text, options) if text else frozenset()
    if len(gold) == 1 or multiple == "exact":
        return float(chosen == gold)
    return 2 * len(chosen & gold) / (len(chosen) + len(gold))


def parse_yes_no(text: str) -> bool | None:
    """The polarity of the text's first word; None if it has none, or if the opposite follows at once."""
    rest = _ANSWER_IS.sub("", text.casefold(), count=1).lstrip(" ([{*\"'")
    polarity, rest = _leading_polarity(rest)
    if polarity is None:
        return None
    following = rest.lstrip(" ,/|;&、([").removeprefix("or ").removeprefix("and ").lstrip()
    after, _ = _leading_polarity(following)
    return None if after is not None and after != polarity else polarity


def _leading_polarity(text: str) -> tuple[bool | None, str]:
    for word in _LONGEST_FIRST:
        if text.startswith(word):
            rest = text[len(word) :]
            if not rest[:1].isalnum():
                return _POLARITY[word], rest
    return None, text


def _gold_polarity(columns: Columns) -> bool:
    gold = gold_value(columns, GOLD)
    if isinstance(gold, bool) or gold in (0, 1, "0", "1"):
        return bool(int(gold))
    polarity = parse_yes_no(normalise_short(str(gold)))
    if polarity is None:
        raise Unscorable(f"gold {gold!r:.80} is neither yes nor no")
    return polarity


def _gold_yes_no_text(columns: Columns, **_: Any) -> str:
    return "yes" if _gold_polarity(columns) else "no"


@reward(gold=GOLD, gold_text=_gold_yes_no_text)
def yes_no(completion: str, columns: Columns) -> float:
    """The right polarity of a yes/no question: 1 if right, else 0.

    The first word of the answer decides: yes, no, true, false, and their counterparts in Chinese, Japanese,
    Korean, Arabic, Russian and a few European languages; "the answer is" may stand before it.

    Gold:
        ``solution`` (or ``answer``): such a word, a bool, or 0 and 1.

    None:
        No gold, or a gold that is neither yes nor no.

    Rises with:
        Being right.

    Gaming:
        - "yes or no", "yes/no": the opposite word right after the first makes it no answer
          (test_hedged_yes_no).

    Frame:
        None.

    Source:
        Accuracy.
    """
    gold = _gold_polarity(columns)
    text = short_answer(completion)
    return float(text is not None and parse_yes_no(text) is gold)
