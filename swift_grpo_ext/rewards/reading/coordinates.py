"""Boxes and points that a text writes without JSON, and their names. Every pattern is bounded: linear."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from swift_grpo_ext.rewards.reading.schema import any_case, by_word
from swift_grpo_ext.rewards.reading.words import PLACES

MAX_LABEL = 160  # characters before a place that are looked at
MAX_RANGES = 64  # of an answer, such as "x: 10-30"; more are no box

# "<box>": no part of a label
_TAGS = re.compile(r"<[^<>]{0,64}>?|^[a-z_|]{1,16}\|?>|\*\*|`|\|")
# "1. ": before a label in a list
_ITEM = re.compile(r"^[\s\-*•#>–—,;.。、]*(?:\(?\d{1,3}[.):、]\s*)?[\s\-*•]*")
# "x1=\"1\" alt=\"cat\""
_ALT = re.compile(r"[^<>]{0,160}\balt=[\"']([^\"'<>]{1,160})[\"']")
# ". ": after which a label begins
_SENTENCE = re.compile(r"[.。!?！？]\s|[{}\[\]()\\$]")
# " black cat": a label behind its place
_AFTER = re.compile(r"[^\n;\[(<]{0,160}")


def label_around(text: str, begin: int, start: int, end: int, behind: bool = False) -> tuple[str, bool]:
    """The words before a place on its line, else those behind it, and whether they stand behind.

    `begin` ends the place before it; with `behind` the words between are that one's.
    """
    begin = max(begin, text.rfind("\n", begin, start) + 1, start - MAX_LABEL)
    alt = _ALT.match(text[start : end + MAX_LABEL])
    if alt and text[start - 1 : start] in (" ", "<"):
        return alt[1].strip(), False
    before = "" if behind else _cleaned(text[begin:start])
    after = None if before else _AFTER.match(_TAGS.sub("", text[end : end + MAX_LABEL]).lstrip(" ])}.,"))
    label = _cleaned(after[0].rstrip(" .,。")) if after else before
    return label, bool(label and not before)


def _cleaned(words: str) -> str:
    words = _ITEM.sub("", _SENTENCE.split(_TAGS.sub(" ", words).strip())[-1])
    words = PLACES.first_words.sub("", PLACES.conjunction.sub("", words))
    words = PLACES.last_words.sub("", words).strip(" \t\"'“”‘’.。()")
    named = any(character.isalpha() for character in words) and not PLACES.no_label.fullmatch(words)
    return words if named else ""


# With ``box``, four numbers or two pairs are a box; with ``point``, each pair is a point; with ``both``, any.
Kind: TypeAlias = Literal["box", "point", "both"]

_NUMBER = r"[-+]?(?:\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})(?:[eE][-+]?\d{1,2})?"
_COMMA = r"(?:px)?\s{0,8}[,;|\s]\s{0,8}"
_OPEN = r"[\[(>]\s{0,8}"
_CLOSE = r"(?:px)?\s{0,8}(?=[\])<])"  # not taken in: a tag that closes one may open the next
_TWO = rf"({_NUMBER}){_COMMA}({_NUMBER})"
_FOUR = rf"{_TWO}{_COMMA}{_TWO}"
# "240, 160"
_BARE_POINT = re.compile(_TWO)
# "[10, 20, 30, 40]"
_FOURS = re.compile(f"{_OPEN}{_FOUR}{_CLOSE}")
# "(10, 20)"
_PAIRS = re.compile(f"{_OPEN}{_TWO}{_CLOSE}")
# "(10, 20)"
_BRACKETS = re.compile(f"{_FOURS.pattern}|{_PAIRS.pattern}")
# "10, 20, 30, 40"
_RUN = re.compile(rf"(?<![\w.]){_NUMBER}(?:{_COMMA}{_NUMBER}){{1,15}}(?![\w.]*\d)")
# "-1.5"
_EACH = re.compile(_NUMBER)

# "<loc0256><loc0768>"
_BINS = re.compile(r"(?:<\|?(?:loc|bin|coord|[xy])?_?\d{1,4}\|?>\s{0,2}){2,}")
# "<loc0256>"
_BIN = re.compile(r"<\|?(loc(?=\d{4}>))?\D{0,6}(\d{1,4})")
_PALIGEMMA = (1, 0, 3, 2)  # its <loc0123> tokens write y before x


NAMES = by_word(PLACES.coordinates)  # names of one coordinate, and what each means


_EDGE = r"[\"'*`]{0,3}(?:\s{0,3}(?:coordinate|edge|value))?\s{0,4}(?:[=:>为是]|is\b|at\b)[\"'*`\s]{0,5}"
# "x_min: 10"
_NAMED = any_case(rf"(?<![A-Za-z0-9])({'|'.join(sorted(NAMES, key=len, reverse=True))}){_EDGE}({_NUMBER})")
# "x: 10-30"
_RANGE = any_case(rf"(?<![A-Za-z0-9])([xy])({_EDGE})({_NUMBER})\s?(?:-|–|to)\s?({_NUMBER})")
# "x1=\"10\" y1=\"20\""
_NUMBERED = any_case(rf"\bx(\d{{0,3}}){_EDGE}({_NUMBER})[\"']?\s{{0,4}},?\s{{0,4}}y\1{_EDGE}({_NUMBER})")
# "<points "
_POINT_TAG = re.compile(r"<points?\s")


@dataclass(frozen=True)
class Written:
    """One box or point in a text."""

    numbers: tuple[float, ...]  # four or two
    named: bool = False  # names or marks say what each number is; then corners come first, x before y
    start: int = 0  # where it starts in the text
    end: int = 0  # where it ends
    label: str = ""  # what the text calls it, "" if nothing


def written_out(text: str, kind: Kind) -> list[Written]:
    """Each box or point of a text, in order."""
    plain = unicodedata.normalize("NFKC", text)
    plain = _RANGE.sub(r"\1\2\3, \1\2\4", plain, count=MAX_RANGES)
    if kind != "box" and (bare := _BARE_POINT.fullmatch(plain.rpartition(":")[2].strip(" *."))):
        return [Written((float(bare[1]), float(bare[2])))]
    places = (
        list(_bins(plain, kind))
        or _named_boxes(plain, kind)
        or _brackets(plain, kind)
        or _named_points(plain, kind)
        or _runs_of_four(plain)
    )
    named: list[Written] = []
    behind = False
    for place in places:
        begin = named[-1].end if named else 0
        behind = behind and "\n" not in plain[begin : place.start]
        label, behind = label_around(plain, begin, place.start, place.end, behind)
        if not label and named and PLACES.listed.fullmatch(plain, begin, place.start):
            label = named[-1].label  # cat: [1, 2, 3, 4], [5, 6, 7, 8]
        named.append(replace(place, label=label))
    return named


def shaped(values: Mapping[str, float], shapes: tuple[tuple[str, ...], ...]) -> tuple[float, ...] | None:
    """Corners, or a point, from named coordinates; None if none of these shapes is complete."""
    for shape in shapes:
        if all(name in values for name in shape):
            numbers = tuple(values[name] for name in shape)
            if "w" not in shape:
                return numbers
            x, y, w, h = numbers
            left, top = (x - w / 2, y - h / 2) if "cx" in shape else (x, y)
            return (left, top, left + w, top + h)
    return None


def _bins(text: str, kind: Kind) -> Iterator[Written]:
    """Runs of coordinate tokens: Florence-2, PaliGemma, OFA, MiniGPT-v2."""
    size = 2 if kind == "point" else 4
    for run in _BINS.finditer(text):
        bins = list(_BIN.finditer(run[0]))
        size = 2 if kind == "both" and len(bins) % 4 else size
        for first in range(0, len(bins) - size + 1, size):
            four = bins[first : first + size]
            numbers = tuple(float(token[2]) for token in four)
            if size == 4 and four[0][1]:
                numbers = tuple(numbers[place] for place in _PALIGEMMA)
            start = run.start() + four[0].start()
            yield Written(numbers, size == 4 and bool(four[0][1]), start, run.start() + four[-1].end() + 1)


def _named_boxes(text: str, kind: Kind) -> list[Written]:
    if kind == "point" or _POINT_TAG.search(text):
        return []
    places: list[Written] = []
    values: dict[str, float] = {}
    start = 0
    for name in _NAMED.finditer(text):
        role = NAMES[name[1].lower()]
        if role in values and (values.keys() == {"x"} or {"x2", "y"} <= values.keys()):
            role += "2"  # from x=10 to x=30, and y=20 to y=40
        if role in values:
            values = {}
        start = start if values else name.start()
        values[role] = float(name[2])
        if corners := shaped(values, PLACES.box_shapes):
            places.append(Written(corners, True, start, name.end()))
            values = {}
    return places


def _named_points(text: str, kind: Kind) -> list[Written]:
    pairs = _NUMBERED.finditer(text)
    points = [Written((float(pair[2]), float(pair[3])), True, *pair.span()) for pair in pairs]
    if kind != "box":
        return points
    return [_joined(*points)] if len(points) == 2 and not _POINT_TAG.search(text) else []


def _brackets(text: str, kind: Kind) -> list[Written]:
    """Fours and pairs in brackets or tags; pairs that are corners of one box are joined."""
    pattern = _PAIRS if kind == "point" else _BRACKETS
    places = []
    for match in pattern.finditer(text):
        numbers = tuple(float(number) for number in match.groups() if number is not None)
        places.append(Written(numbers, False, *match.span()))
    if kind == "point":
        return places
    joined = _join_corners(text, places, PLACES.between_corners if kind == "box" else PLACES.as_one_box)
    pairs = [place for place in joined if len(place.numbers) == 2]
    if kind == "box":
        boxes = [place for place in joined if len(place.numbers) == 4]
        return boxes or ([_joined(*pairs)] if len(pairs) == 2 else [])
    fours = [place for place in places if len(place.numbers) == 4]
    # Pairs that are not all corners of boxes are points: [(1,2), (3,4), (5,6)].
    return fours or (places if pairs else joined)


def _join_corners(text: str, places: list[Written], between: re.Pattern[str]) -> list[Written]:
    joined: list[Written] = []
    waiting: Written | None = None
    for place in places:
        if waiting and len(place.numbers) == 2 and between.fullmatch(text, waiting.end, place.start):
            joined[-1] = _joined(waiting, place)
            waiting = None
            continue
        joined.append(place)
        waiting = place if len(place.numbers) == 2 else None
    return joined


def _joined(first: Written, last: Written) -> Written:
    return Written((*first.numbers, *last.numbers), first.named, first.start, last.end)


def _runs_of_four(text: str) -> list[Written]:
    runs = [(run, tuple(map(float, _EACH.findall(run[0])))) for run in _RUN.finditer(text)]
    return [Written(numbers, False, *run.span()) for run, numbers in runs if len(numbers) == 4]
