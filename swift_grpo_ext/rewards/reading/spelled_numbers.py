"""Numbers in words, English and Chinese."""

import re
import unicodedata
from collections.abc import Sequence

_SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen""".split()  # noqa: SIM905


_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905


_VALUES: dict[str, float] = {word: value for value, word in enumerate(_SMALL)}


_VALUES |= {word: 10 * tens for tens, word in enumerate(_TENS, start=2)}


_VALUES |= {"half": 0.5, "dozen": 12, "hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9}


_BELOW_100 = rf"(?:(?:{'|'.join(_TENS)})(?:[\s-](?:{'|'.join(_SMALL[1:10])})\b)?|(?:{'|'.join(_SMALL)})\b)"


_BELOW_1000 = rf"(?:(?:{_BELOW_100}|an?)\s+hundred(?:\s+(?:and\s+)?{_BELOW_100})?|{_BELOW_100})"


_ENGLISH = re.compile(
    rf"(?<![\w-])(?:(minus|negative)\s+)?((?:(?:{_BELOW_1000}|an?)\s+(?:thousand|million"
    rf"|billion)(?:,?\s+(?:and\s+)?)?){{1,3}}{_BELOW_1000}?|{_BELOW_1000}|(half\s)?an?\s+dozen)(?![\w]|-[a-z])",
    re.IGNORECASE,
)


_PRONOUN = re.compile(r"(?:\b(?:no|any|every|some|each|this|that|the|which|only)[\s-]\Z|-\Z)", re.IGNORECASE)


CLASSIFIERS = (
    "个個只隻头頭匹辆輛人条條张張本把朵颗顆棵座栋棟架艘台支枝件双對对名位间間扇块塊杯瓶盘盤碗层層种種次步元块岁歲年月日天周"
    "时時小分秒度米克千公里厘毫吨噸升斤栏列行排项項处處家所段首部幅面根片份组組队隊群号號枚串袋盒箱户棟つ匹枚羽倍"
)


_UP_TO = re.compile(r"(?:到|至|或|[~～-])[一二两三四五六七八九十]")  # 六到七只
_CHINESE = re.compile(
    r"(?<![第十百千万亿零一二三四五六七八九\d])[零〇一二两兩三四五六七八九十百千万萬亿億]{1,24}(?!\d)"
)


_PERCENT = re.compile(
    r"百分之([零〇一二两三四五六七八九十百\d]{1,12})(?:[.点]([零〇一二两三四五六七八九\d]{1,9}))?"
)


def with_digits(text: str, alone: bool = False) -> str:
    """The text with spelled numbers in digits: "three hundred", 百分之二十; "one" only with `alone`."""
    text = _PERCENT.sub(_percentage, text)
    text = re.sub(r"(?:零下|负)(?=[\d零一二两三四五六七八九十百])", "-", text)
    text = _CHINESE.sub(lambda run: _chinese_run(run, text), text)
    return _ENGLISH.sub(lambda words: _english_run(words, text, alone), text)


def _percentage(part: re.Match[str]) -> str:
    decimals = f".{''.join(map(str, _han_values(part[2])))}" if part[2] else ""
    return f"{spelled(_han_values(part[1]))}{decimals}%"


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
