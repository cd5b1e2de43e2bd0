"""What a line of text calls the box or point that stands in it: ``- cat: [1, 2, 3, 4]``."""

from __future__ import annotations

import re

MAX_LABEL = 160
"""Characters before a place that are looked at."""

_TAGS = re.compile(r"<[^<>]{0,64}>?|^[a-z_|]{1,16}\|?>|\*\*|`|\|")
_ITEM = re.compile(r"^[\s\-*•#>–—,;.。、]*(?:\(?\d{1,3}[.):、]\s*)?[\s\-*•]*")
_CONJUNCTION = re.compile(r"^(?:and|和|与|以及|;|,)\s*", re.IGNORECASE)
_FIRST = re.compile(r"^(?:(?:there (?:is|are)|i (?:see|found|detect)|the|an?|one)\s+)+", re.IGNORECASE)
_LAST = re.compile(
    r"(?:[\s:：=,\-–—>([]+|\b(?:is|are|was|located|found|detected|positioned|at|in|on|with|its|the|of|an?|bounding"
    r"|box(?:es)?|bbox(?:_2d)?|box_2d|coordinates?|position|location|region|area)|['’]s|是|为|在|位于|的|坐标|位置|边界框|检测框)$",
    re.IGNORECASE,
)
_ALT = re.compile(r"[^<>]{0,160}\balt=[\"']([^\"'<>]{1,160})[\"']")
_SENTENCE = re.compile(r"[.。!?！？]\s|[{}\[\]()\\$]")
_NO_LABEL = re.compile(
    r"(?:final )?answer|from|(?:top|upper)[- ]left(?: corner)?|左上角?|with confidence.*|box_end|答案|the",
    re.IGNORECASE,
)
_AFTER = re.compile(r"[^\n;\[(<]{0,160}")


def label_around(text: str, begin: int, start: int, end: int, behind: bool = False) -> tuple[str, bool]:
    """The words before a place on its line, else those behind it, and whether they stand behind.

    `begin` is the end of the place before it; `behind` says that that one has its words behind it, so that
    they are not this place's.
    """
    begin = max(begin, text.rfind("\n", begin, start) + 1, start - MAX_LABEL)
    alt = _ALT.match(text[start : end + MAX_LABEL])
    if alt and text[start - 1 : start] in (" ", "<"):
        return alt[1].strip(), False
    before = "" if behind else _cleaned(text[begin:start])
    after = None if before else _AFTER.match(_TAGS.sub("", text[end : end + MAX_LABEL]).lstrip(" ])}.,"))
    found = _cleaned(after[0].rstrip(" .,。")) if after else before
    return found, bool(found and not before)


def _cleaned(words: str) -> str:
    words = _ITEM.sub("", _SENTENCE.split(_TAGS.sub(" ", words).strip())[-1])
    words = _FIRST.sub("", _CONJUNCTION.sub("", words))
    for _ in range(16):
        shorter = _LAST.sub("", words)
        if shorter == words:
            break
        words = shorter
    words = words.strip(" \t\"'“”‘’.。()")
    named = any(character.isalpha() for character in words) and not _NO_LABEL.fullmatch(words)
    return words if named else ""
