"""Numbers in words: English, Chinese, and the small ones of a few European languages."""

import re
import unicodedata
from collections.abc import Sequence

from swift_grpo_ext.rewards.reading.schema import any_case, by_word
from swift_grpo_ext.rewards.reading.words import QUANTITIES

CLASSIFIERS = QUANTITIES.classifiers
_VALUES: dict[str, float] = {word: int(value) for word, value in by_word(QUANTITIES.numbers).items()}
_SMALL = [word for word, value in _VALUES.items() if value < 20]
_DIGITS = [word for word, value in _VALUES.items() if 0 < value < 10]
_TENS = [word for word, value in _VALUES.items() if 20 <= value < 100]
_VALUES |= {"half": 0.5, "dozen": 12}
_BELOW_100 = rf"(?:(?:{'|'.join(_TENS)})(?:[\s-](?:{'|'.join(_DIGITS)})\b)?|(?:{'|'.join(_SMALL)})\b)"
_BELOW_1000 = rf"(?:(?:{_BELOW_100}|an?)\s+hundred(?:\s+(?:and\s+)?{_BELOW_100})?|{_BELOW_100})"
# "two hundred and five"
_ENGLISH = any_case(
    rf"(?<![\w-])(?:(minus|negative)\s+)?((?:(?:{_BELOW_1000}|an?)\s+(?:thousand|million"
    rf"|billion)(?:,?\s+(?:and\s+)?)?){{1,3}}{_BELOW_1000}?|{_BELOW_1000}|(half\s)?an?\s+dozen)(?![\w]"
    rf"|-[a-z])"
)
# "no ": before "one"
_PRONOUN = any_case(r"(?:\b(?:no|any|every|some|each|this|that|the|which|only)[\s-]\Z|-\Z)")
# "到七": as in 六到七只
_UP_TO = re.compile(r"(?:到|至|或|[~～-])[一二两三四五六七八九十]")  # 六到七只
# "二十三"
_CHINESE = re.compile(
    r"(?<![第十百千万亿零一二三四五六七八九\d])[零〇一二两兩三四五六七八九十百千万萬亿億]{1,24}(?!\d)"
)
_DIGIT = "零〇一二两三四五六七八九"
_NUMERAL = rf"[{_DIGIT}十百\d]{{1,12}}(?:[.点][{_DIGIT}\d]{{1,9}})?"
# 百分之二十点五, 四分之一
# "百分之二十"
_PARTS = re.compile(rf"(百|[{_DIGIT}十]{{1,4}})分之({_NUMERAL})")
# 三点五, but no time of the day
# "三点五"
_DECIMAL = re.compile(rf"[{_DIGIT}十百]{{1,8}}点[{_DIGIT}]{{1,9}}(?![钟整十分])")


def with_digits(text: str, alone: bool = False) -> str:
    """The text with spelled numbers in digits: "three hundred", 百分之二十; "one" only with `alone`."""
    text = _DECIMAL.sub(lambda numeral: _numeral(numeral[0]), _PARTS.sub(_share, text))
    text = re.sub(r"(?:零下|负)(?=[\d零一二两三四五六七八九十百])", "-", text)
    text = _CHINESE.sub(lambda run: _chinese_run(run, text), text)
    return _ENGLISH.sub(lambda words: _english_run(words, text, alone), text)


def _share(part: re.Match[str]) -> str:
    return f"{_numeral(part[2])}%" if part[1] == "百" else f"{_numeral(part[2])}/{_numeral(part[1])}"


def _numeral(text: str) -> str:
    whole, _, decimals = text.replace(".", "点").partition("点")
    return f"{spelled(_han_values(whole))}.{''.join(map(str, _han_values(decimals)))}".rstrip(".")


def _han_values(text: str) -> list[int]:
    return [2 if character in "两兩" else int(unicodedata.numeric(character)) for character in text]


def _chinese_run(run: re.Match[str], text: str) -> str:
    """A lone numeral counts only before something that is counted: 一共 holds no number."""
    following = text[run.end() : run.end() + 1]
    whole = not text[: run.start()].strip(" -") and not text[run.end() :].strip(" 。.!")
    counted = len(run[0]) > 1 or whole or (following != "" and following in CLASSIFIERS)
    up_to = _UP_TO.match(text, run.end())
    if not (counted or up_to) or run[0][0] in "万萬亿億百千":
        return run[0]
    apart = " " if run.start() and text[run.start() - 1] != "-" else ""
    return f"{apart}{spelled(_han_values(run[0]))}"


def _english_run(words: re.Match[str], text: str, alone: bool) -> str:
    plain = re.findall(r"[a-z]+", words[2].casefold())
    if plain == ["one"]:
        thing = text.startswith(" of ", words.end()) or _PRONOUN.search(text[: words.start()][-8:])
        if thing or not (alone or text.strip(" .*!").casefold() == "one"):
            return words[0]
    value = spelled([_VALUES[word] for word in plain if word in _VALUES])
    return f"{'-' if words[1] else ''}{value}"


def spelled(values: Sequence[float]) -> int:
    """The number of the values of its words in order: a greater one multiplies the smaller ones before it."""
    if max(values) < 10:  # 二〇二三
        return int("".join(map(str, values)))
    parts: list[float] = []
    for value in values:
        smaller = 0.0
        while parts and parts[-1] < value:
            smaller += parts.pop()
        parts.append(value * (smaller or 1) if value >= 10 else value)
    return int(sum(parts))
