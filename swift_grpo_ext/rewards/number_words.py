"""Numbers in words, English and Chinese, written as digits."""

from __future__ import annotations

import re

_DIGITS = "zero one two three four five six seven eight nine"
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_SMALL = f"{_DIGITS} {_TEENS}".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
_VALUES = {word: value for value, word in enumerate(_SMALL)} | {
    word: 10 * tens for tens, word in enumerate(_TENS, start=2)
}
_SCALES = {"hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9}
_BELOW_100 = rf"(?:(?:{'|'.join(_TENS)})(?:[\s-](?:{'|'.join(_SMALL[1:10])})\b)?|(?:{'|'.join(_SMALL)})\b)"
_BELOW_1000 = rf"(?:(?:{_BELOW_100}|an?)\s+hundred(?:\s+(?:and\s+)?{_BELOW_100})?|{_BELOW_100})"
_ENGLISH = re.compile(
    rf"(?<![\w-])(?:(minus|negative)\s+)?((?:(?:{_BELOW_1000}|an?)\s+(?:thousand|million"
    rf"|billion)(?:,?\s+(?:and\s+)?)?)"
    rf"{{1,3}}{_BELOW_1000}?|{_BELOW_1000}|(?:half\s)?an?\s+dozen"
    rf"|{_BELOW_100}\s+dozen)(\s+dozen)?(?![\w]|-[a-z])",
    re.IGNORECASE,
)
_DOZENS = re.compile(r"(?<![\w.])(\d{1,6})\s+(?:dozen|(hundred))\b", re.IGNORECASE)
_PRONOUN = re.compile(r"(?:\b(?:no|any|every|some|each|this|that|the|which|only)[\s-]\Z|-\Z)", re.IGNORECASE)

_HAN = {character: value for value, character in enumerate("零一二三四五六七八九")} | dict.fromkeys("两兩", 2)
_HAN["〇"] = 0
_HAN_SCALES = {"十": 10, "百": 100, "千": 1_000, "万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_CLASSIFIERS = (
    "个個只隻头頭匹辆輛人条條张張本把朵颗顆棵座栋棟架艘台支枝件双對对名位间間扇块塊杯瓶盘盤碗层層种種次步元块岁歲年月日天周"
    "时時小分秒度米克千公里厘毫吨噸升斤栏列行排项項处處家所段首部幅面根片份组組队隊群号號枚串袋盒箱户棟つ匹枚羽倍"
)
_CHINESE = re.compile(
    r"(?<![第十百千万亿零一二三四五六七八九\d])[零〇一二两兩三四五六七八九十百千万萬亿億]{1,16}(?!\d)"
)
_PERCENT = re.compile(r"百分之([零〇一二两三四五六七八九十百\d.点]{1,12})")


def with_digits(text: str, alone: bool = False) -> str:
    """The text with the numbers that it spells in digits: "three hundred", 三百, 百分之二十, "a dozen".

    With `alone` a lone "one" is a number, too, unless it stands for a thing ("this one").
    """
    text = _PERCENT.sub(lambda part: f"{_digits(part[1])}%", text)
    text = re.sub(r"(?:零下|负)(?=[\d零一二两三四五六七八九十百])", "-", text)
    text = _CHINESE.sub(lambda run: _chinese_run(run, text), text)
    text = _ENGLISH.sub(lambda words: _english_run(words, text, alone), text)
    return _DOZENS.sub(lambda many: str((100 if many[2] else 12) * int(many[1])), text)


def _digits(text: str) -> str:
    return text if text[0].isdigit() else str(chinese_number(text))


def _chinese_run(run: re.Match[str], text: str) -> str:
    """A lone numeral counts only before something that is counted: 一共 holds no number."""
    following = text[run.end() : run.end() + 1]
    whole = not text[: run.start()].strip(" -") and not text[run.end() :].strip(" 。.!")
    if run[0][0] in "万萬亿億百千" or not (
        len(run[0]) > 1 or whole or (following in _CLASSIFIERS and following)
    ):
        return run[0]
    return (
        f" {chinese_number(run[0])}"
        if run.start() and text[run.start() - 1] != "-"
        else str(chinese_number(run[0]))
    )


def chinese_number(text: str) -> int:
    """The value of a Chinese numeral: 三百二十, 十万, 二〇二三."""
    if not set(text) & set(_HAN_SCALES):
        return int("".join(str(_HAN[character]) for character in text))
    total = section = digit = 0
    for character in text:
        if character in _HAN:
            digit = _HAN[character]
        elif (scale := _HAN_SCALES[character]) < 10**4:
            section, digit = section + max(digit, 1) * scale, 0
        else:
            total, section, digit = (total + max(section + digit, 1)) * scale, 0, 0
    return total + section + digit


def _english_run(words: re.Match[str], text: str, alone: bool) -> str:
    plain = words[2].casefold().replace("-", " ").replace(",", " ").split()
    before = text[max(0, words.start() - 8) : words.start()]
    of = text.startswith(" of ", words.end())
    if plain == ["one"] and (
        of or _PRONOUN.search(before) or not (alone or text.strip(" .*!").casefold() == "one")
    ):
        return words[0]
    value = english_number(plain) * (12 if words[3] else 1)
    return f"{'-' if words[1] else ''}{value}"


def english_number(words: list[str]) -> int:
    """The value of number words in their order: "two", "hundred", "and", "five"."""
    total = current = 0
    for word in words:
        if word == "dozen":
            current = max(current, 1) * 12 // (2 if words[0] == "half" else 1)
        elif word == "hundred":
            current = max(current, 1) * 100
        elif word in _SCALES:
            total, current = total + max(current, 1) * _SCALES[word], 0
        else:
            current += _VALUES.get(word, 0)
    return total + current
