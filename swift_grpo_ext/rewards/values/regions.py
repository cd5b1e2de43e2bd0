"""Boxes and points: JSON with the keys of `KEYS`, numbers in brackets, or a family's own marks.

>>> [region.box for region in read('[{"bbox_2d": [1, 2, 3, 4], "label": "cat"}]', "box")]
[(1.0, 2.0, 3.0, 4.0)]
>>> [read(text, "box")[0].box for text in (
...     "[1, 2, 3, 4]", "(1,2),(3,4)", "<box>[[1, 2, 3, 4]]</box>", "<|box_start|>(1,2),(3,4)<|box_end|>",
...     '{"top_left": [1, 2], "bottom_right": [3, 4]}', "<loc0002><loc0001><loc0004><loc0003>",
... )] == [(1, 2, 3, 4)] * 6
True
>>> [read(text, "both")[0].point for text in (
...     "[5, 6]", "(5, 6)", "x=5, y=6", "click(5, 6)", '{"point_2d": [5, 6]}', '<point x="5" y="6">',
... )] == [(5, 6)] * 6
True

Nothing else may stand there: ``about [1, 2, 3, 4]``, ``not [1, 2, 3, 4]`` and ``10 20 or 30 40`` are none,
and so is JSON in which a key stands twice.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from swift_grpo_ext.rewards.contract import Unread
from swift_grpo_ext.rewards.json_text import Json, decoded, first_value, literal, strict
from swift_grpo_ext.rewards.values.region import OrderOf, Region, as_corners, region_of_numbers

# With ``box``, four numbers or two pairs are a box; with ``point``, each pair is a point; with ``both``, any.
Kind: TypeAlias = Literal["box", "point", "both"]
MAX_REGIONS = 300  # an answer with more objects counts as none
NOTHING = ("[]", "{}", "none", "null", "nothing", "no object", "no objects", "not visible", "无", "没有")
KEYS = {
    "place": "bbox_2d bbox box box_2d bounding_box bounding_box_2d bndbox rect bounds coordinates coords "
    "coordinate coord position point_2d point center click_point start_box location xyxy 边界框 坐标",
    "label": "label labels category categories category_name class classes class_name name names ref refs "
    "object description phrase expression caption item entity text_content 标签 类别 名称",
    "score": "score scores confidence conf probability",
    "items": "objects boxes bboxes bounding_boxes points detections annotations results items answer",
    "image": "image_id image_index image_idx",
    "first": "top_left lefttop upper_left 左上角 左上",
    "last": "bottom_right rightbottom lower_right 右下角 右下",
    "x0": "x0",
    "y0": "y0",
    "x1": "x1 xmin min_x left x_left xtl",
    "y1": "y1 ymin min_y top y_top ytl",
    "x2": "x2 xmax max_x right x_right xbr",
    "y2": "y2 ymax max_y bottom y_bottom ybr",
    "x": "x",
    "y": "y",
    "w": "w width",
    "h": "h height",
    "cx": "cx x_center center_x xc",
    "cy": "cy y_center center_y yc",
}
_ROLES = {word.replace("_", ""): role for role, words in KEYS.items() for word in words.split()}
# Coordinates that make a box or a point; the first that are all there count.
_BOXES = (
    ("x1", "y1", "x2", "y2"), ("x0", "y0", "x1", "y1"), ("cx", "cy", "w", "h"), ("x", "y", "w", "h"),
    ("x1", "y1", "w", "h"), ("x", "y", "x2", "y2"),
)  # fmt: skip
_POINTS = (("x", "y"), ("cx", "cy"), ("x1", "y1"), ("x2", "y2"))
_BESIDE = ("label", "score", "image")
_LENGTHS = {"box": (4,), "point": (2,), "both": (2, 4)}
_MAX_DEPTH = 6

_N = r"\s{0,4}(-?\d{1,7}(?:\.\d{0,15})?)(?:px)?\s{0,4}"
_FOUR = re.compile(rf"[\[(]{{0,2}}{_N}[,;\s]{_N}[,;\s]{_N}[,;\s]{_N}[\])]{{0,2}}")
_PAIRS = re.compile(rf"[\[(]{{0,2}}{_N}[,\s]{_N}[\])]\s?(?:,|;|to|-|->)?\s?[\[(]{_N}[,\s]{_N}[\])]{{0,2}}")
_TWO = re.compile(
    rf"(?:(?:\w{{1,20}}\.)?(?:click|tap|left_click|move_?to)\s?(?=\())?"
    rf"[\[(]{{0,2}}(?:x\s?[=:])?{_N}[,;\s]\s?(?:y\s?[=:])?{_N}[\])]{{0,2}}"
)

_APART = re.compile(r"[\])]\s?,?\s")  # between two points that are no corners of one box
_EACH = re.compile(rf"[\[(]{_N}(?:,{_N}){{1,3}}[\])]")
_NUMBER = re.compile(_N)
_BETWEEN = re.compile(r"[\s,;\[\]]*")
_MARKED = re.compile(
    r"(?:<(?:ref|p|phrase|\|object_ref_start\||\|ref\|)>([^<>]{1,160})<(?:/|\|object_ref_end\|>|\|/ref\|>)"
    r"[a-z]{0,6}>?)?\s{0,4}<(box|point|\|box_start\||\|point_start\||quad)>([^<>]{3,200})"
    r"(?:</(?:box|point|quad)>|<\|(?:box|point)_end\|>)"
)
_BIN = re.compile(r"<\|?(?:loc|bin|coord|[xy])?_?(\d{1,4})\|?>")
_BINS = re.compile(r"((?:<\|?(?:loc|bin|coord|[xy])?_?\d{1,4}\|?>\s?){2,4})([\w -]{0,64})")
_PALIGEMMA = re.compile(r"<loc\d{4}>")
_TAG = re.compile(r"<points?\s([^<>]{5,400})/?>(?:[^<>]{0,160}</points?>)?")
_XY = re.compile(r"\bx(\d{0,2})\s?=\s?\"(-?[\d.]{1,12})\"\s{1,4}y\1\s?=\s?\"(-?[\d.]{1,12})\"")
_ALT = re.compile(r"\balt=\"([^\"]{1,160})\"")


def read(text: str, kind: Kind, order_of: OrderOf = as_corners) -> list[Region]:
    """The objects of a text; `kind` is what numbers without a key mean.

    Raises:
        Unread: It holds none, more than `MAX_REGIONS`, or anything else beside them.
    """
    regions = _json(text, kind, order_of) if text[:1] in ("[", "{", "(") else []
    regions = regions or (_with_marks(text, order_of) if "<" in text else _bare(text, kind, order_of))
    if len(regions) > MAX_REGIONS:
        raise Unread(f"{len(regions)} objects, at most {MAX_REGIONS} are read")
    if not regions:
        what = {"box": "box", "point": "point", "both": "box or point"}[kind]
        raise Unread(text, f"{what} ([x1, y1, x2, y2], [x, y], or JSON with keys such as bbox_2d, point_2d)")
    return regions


def says_nothing(text: str) -> bool:
    """Whether a text says that nothing is there."""
    return text.casefold() in NOTHING or not any(map(_is_filled, decoded(text, strict) or [text]))


def _is_filled(value: Json) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else None
    return value is not None if inner is None else any(map(_is_filled, inner))


def role_of(key: str) -> str:
    """What a key stands for, whatever its case and punctuation; "" for one that is not known."""
    return _ROLES.get("".join(filter(str.isalnum, key[:64].casefold())), "")


def regions_in(value: Json, kind: Kind, order_of: OrderOf = as_corners) -> list[Region]:
    """The objects in a decoded JSON value."""
    return list(_walk(value, kind, order_of, "", 0))


def _json(text: str, kind: Kind, order_of: OrderOf) -> list[Region]:
    value = next(iter(decoded(text, first_value, literal)), None)
    return regions_in(value, kind, order_of)


def _bare(text: str, kind: Kind, order_of: OrderOf) -> list[Region]:
    """One box or point, or several between commas or on lines of their own."""
    corners = kind == "box" or (kind == "both" and not _APART.search(text))
    found = _FOUR.fullmatch(text) or (_PAIRS.fullmatch(text) if corners else None)
    if found is None and kind != "box":
        found = _TWO.fullmatch(text)
    if found is not None:
        return [region_of_numbers([float(number) for number in found.groups()], "", order_of)]
    if not _BETWEEN.fullmatch(_EACH.sub("", text)):
        return []
    lists = [[float(number) for number in _NUMBER.findall(each[0])] for each in _EACH.finditer(text)]
    return [region for numbers in lists for region in regions_in(numbers, kind, order_of)]


def _with_marks(text: str, order_of: OrderOf) -> list[Region]:
    """Objects in marks of their own, where these are all there is."""
    for pattern, made in ((_MARKED, _in_marks), (_BINS, _of_bins), (_TAG, _of_tag)):
        if found := list(pattern.finditer(text)):
            whole = _BETWEEN.fullmatch(pattern.sub("", text))
            return [region for each in found for region in made(each, order_of)] if whole else []
    return []


def _in_marks(found: re.Match[str], order_of: OrderOf) -> list[Region]:
    kind: Kind = "point" if "point" in found[2] else "box"
    regions = _json(found[3], kind, order_of) or _bare(found[3].strip(), kind, order_of)
    return [replace(region, label=(found[1] or "").strip()) for region in regions]


def _of_bins(found: re.Match[str], order_of: OrderOf) -> list[Region]:
    numbers = [float(number) for number in _BIN.findall(found[1])]
    named = bool(_PALIGEMMA.match(found[1])) and len(numbers) == 4
    if named:
        numbers = [numbers[place] for place in (1, 0, 3, 2)]  # <loc0123> tokens write y before x
    label = found[2].strip()
    return [] if len(numbers) == 3 else [region_of_numbers(numbers, label, order_of, named=named)]


def _of_tag(found: re.Match[str], order_of: OrderOf) -> list[Region]:
    label = _ALT.search(found[1])
    points = decoded(found[1], lambda text: [(float(x), float(y)) for _, x, y in _XY.findall(text)])
    return [Region(point=point, label=label[1] if label else "") for point in (points or [[]])[0]]


def _walk(value: Json, kind: Kind, order_of: OrderOf, label: str, depth: int) -> Iterator[Region]:
    """Regions in a decoded JSON value, depth first."""
    if depth > _MAX_DEPTH:
        return
    inner: list[tuple[Json, str]] = []
    if isinstance(value, (list, tuple)):
        if numbers := (_corners(value) if kind == "box" else None) or _numbers(value, _LENGTHS[kind]):
            yield region_of_numbers(numbers, label, order_of)
            return
        inner = [(item, label) for item in value]
    elif isinstance(value, Mapping):
        if (rows := _columns(value)) is not None:
            inner = [(row, label) for row in rows]
        elif region := _region_of_mapping(value, label, order_of):
            yield region
            return
        else:
            inner = _named_parts(value, label)
    elif isinstance(value, str) and depth and value[:1] in ("[", "("):
        yield from _bare(value, kind, order_of)
    for item, name in inner:
        yield from _walk(item, kind, order_of, name, depth + 1)


def _named_parts(value: Mapping[str, Json], label: str) -> list[tuple[Json, str]]:
    """What a mapping holds, with the label that it or its key gives."""
    roles = {key: role_of(str(key)) for key in value}
    own = next((value[key] for key, role in roles.items() if role == "label"), None)
    around = own if isinstance(own, str) else label
    return [
        (inner, around if roles[key] in ("place", "items") else str(key))
        for key, inner in value.items()
        if roles[key] not in _BESIDE and not isinstance(inner, str)
    ]


def _columns(value: Mapping[str, Json]) -> list[dict[str, Json]] | None:
    """Objects written as parallel lists, one object each: ``{"bbox": [[...], ...], "label": [...]}``."""
    listed = {
        key: inner
        for key, inner in value.items()
        if isinstance(inner, (list, tuple)) and inner and all(isinstance(row, (list, tuple)) for row in inner)
    }
    places = next((key for key in listed if role_of(str(key)) in ("place", "items")), None)
    if places is None:
        return None
    given = listed[places]
    beside = {
        key: inner
        for key, inner in value.items()
        if role_of(str(key)) in _BESIDE and isinstance(inner, (str, list, tuple))
    }
    corners = len(given) == 2 and all(len(pair) == 2 for pair in given) and "point" not in str(places)
    if corners and not any(isinstance(inner, (list, tuple)) for inner in beside.values()):
        return None
    rows: list[dict[str, Json]] = [{places if len(row) == 4 else "bbox": row} for row in given]
    for key, inner in beside.items():
        items = list(inner) if isinstance(inner, (list, tuple)) else [inner]
        if role_of(key) == "label" and len(items) == 1:  # one name for all
            items *= len(rows)
        elif role_of(key) == "image":  # as ms-swift fills it
            items += [0] * (len(rows) - len(items))
        if len(items) == len(rows):
            for row, item in zip(rows, items, strict=True):
                row[key] = item
    return rows


def _corners(value: Sequence[Json]) -> list[float] | None:
    """The four numbers of two pairs."""
    pairs = [_numbers(item, (2,)) for item in value] if len(value) == 2 else []
    return [*pairs[0], *pairs[1]] if len(pairs) == 2 and pairs[0] and pairs[1] else None


def _numbers(value: Json, lengths: tuple[int, ...]) -> list[float] | None:
    """The items of a list of such a length, if all are numbers, or texts of numbers: ``["10", "20"]``."""
    if not isinstance(value, (list, tuple)) or len(value) not in lengths:
        return None
    numbers = [number for item in value if (number := _number(item)) is not None]
    return numbers if len(numbers) == len(value) else None


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value) if not isinstance(value, str) or len(value) < 24 else None
    except ValueError:
        return None
    except OverflowError:
        return math.inf


def _region_of_mapping(value: Mapping[str, Json], label: str, order_of: OrderOf) -> Region | None:
    """The object that a mapping describes; None if nothing in it is a place."""
    given: dict[str, list[tuple[str, Any]]] = {}
    for key, inner in value.items():
        if inner is not None:
            given.setdefault(role_of(str(key)), []).append((str(key), inner))
    places = [place for key, inner in given.get("place", ()) if (place := _place(inner, key, order_of))]
    ends = [place.point for end in ("first", "last") for key, inner in given.get(end, ())
            if (place := _place(inner, key, as_corners)) and place.point]  # fmt: skip
    if len(ends) == 2:
        places.append(region_of_numbers([*ends[0], *ends[1]]))
    box = next((place for place in places if place.box), None) or _named(given, _BOXES)
    point = next((place for place in places if not place.box), None)
    point = point or (None if box else _named(given, _POINTS))
    if box is None and point is None:
        return None
    beside = {role: given[role][0][1] for role in _BESIDE if role in given}
    name = beside.get("label")
    score = _number(beside.get("score"))
    image = beside.get("image")
    return replace(
        box or Region(),
        point=point.point if point else None,
        label=(str(name) if isinstance(name, (str, int)) else "") or label,
        confidence=score if score is not None and abs(score) < 1e9 else None,
        broken=any(place.broken for place in (box, point) if place),
        image=image if isinstance(image, int) else None,
    )


def _named(given: Mapping[str, list[tuple[str, Any]]], shapes: Sequence[tuple[str, ...]]) -> Region | None:
    """The box or the point that keys such as ``x1`` and ``width`` name; None if no shape is complete."""
    for shape in shapes:
        if not all(name in given for name in shape):
            continue
        corners = [number for name in shape if (number := _number(given[name][0][1])) is not None]
        if len(corners) == len(shape):
            if "w" in shape:
                x, y, w, h = corners
                left, top = (x - w / 2, y - h / 2) if "cx" in shape else (x, y)
                corners = [left, top, left + w, top + h]
            return region_of_numbers(corners, named=True)
    return None


def _place(value: Json, key: str, order_of: OrderOf) -> Region | None:
    """The box or the point under a key that stands for a place."""
    if isinstance(value, Mapping):
        return _region_of_mapping(value, "", order_of)
    if isinstance(value, str):
        numbers = (
            _FOUR.fullmatch(value.strip()) or _PAIRS.fullmatch(value.strip()) or _TWO.fullmatch(value.strip())
        )
        value = [float(number) for number in numbers.groups()] if numbers else None
    if not isinstance(value, (list, tuple)):
        return None
    if len(value) == 1 and isinstance(value[0], (list, tuple)):
        return _place(value[0], key, order_of)
    if "point" not in key and (corners := _corners(value)):
        return region_of_numbers(corners)
    numbers_given = _numbers(value, _LENGTHS["both"])
    return None if numbers_given is None else region_of_numbers(numbers_given, "", order_of, key)
