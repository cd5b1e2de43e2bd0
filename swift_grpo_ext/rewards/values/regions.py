"""Boxes and points: JSON with the keys of `KEYS`, numbers in brackets, or a family's own marks.

>>> [region.place for region in read('[{"bbox_2d": [1, 2, 3, 4], "label": "cat"}]', "box")]
[(1.0, 2.0, 3.0, 4.0)]
>>> [read(text, "box")[0].place for text in (
...     "[1, 2, 3, 4]", "(1,2),(3,4)", "<box>[[1, 2, 3, 4]]</box>", "<|box_start|>(1,2),(3,4)<|box_end|>",
...     '{"top_left": [1, 2], "bottom_right": [3, 4]}', "<loc0002><loc0001><loc0004><loc0003>",
... )] == [(1, 2, 3, 4)] * 6
True
>>> [read(text, "both")[0].place for text in (
...     "[5, 6]", "(5, 6)", "x=5, y=6", "click(5, 6)", '{"point_2d": [5, 6]}', '<point x="5" y="6">',
...     "click(point='<point>5 6</point>')",
... )] == [(5, 6)] * 7
True

A key for a place holds numbers, not another object. Nothing else may stand beside a place: ``about
[1, 2, 3, 4]``, ``not [1, 2, 3, 4]`` and ``10 20 or 30 40`` do not count, nor does JSON in which a key
stands twice.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from swift_grpo_ext.rewards.contract import Unread
from swift_grpo_ext.rewards.json_text import Json, decoded, first_value, literal, strict
from swift_grpo_ext.rewards.values.region import (
    Order,
    OrderOf,
    Region,
    as_corners,
    pointed_at,
    region_of_numbers,
)

# Numbers without a key: with ``box`` four, or two pairs, are a box; with ``both`` four are, and each pair is
# a point; with ``any`` four or two pairs are a box, and one pair is a point.
Kind: TypeAlias = Literal["box", "both", "any"]
MAX_REGIONS = 300  # an answer with more objects counts as none
NOTHING = ("[]", "{}", "none", "null", "nothing", "no object", "no objects", "not visible", "无", "没有")
KEYS = {
    "place": "bbox_2d bbox box box_2d bounding_box bounding_box_2d bndbox rect bounds coordinates coords "
    "coordinate coord position point_2d point center click_point start_box location xyxy 边界框 坐标",
    "items": "objects boxes bboxes bounding_boxes points detections annotations results items answer",
    "label": "label labels category categories category_name class classes class_name name names ref refs "
    "object description phrase expression caption item entity text_content 标签 类别 名称",
    "image": "image_id image_index image_idx",
    "beside": "score scores confidence conf probability",
    "first": "top_left lefttop upper_left 左上角 左上",
    "last": "bottom_right rightbottom lower_right 右下角 右下",
    "x": "x x1 xmin min_x left x_left xtl",
    "y": "y y1 ymin min_y top y_top ytl",
    "x2": "x2 xmax max_x right x_right xbr",
    "y2": "y2 ymax max_y bottom y_bottom ybr",
    "w": "w width",
    "h": "h height",
}
_ROLES = {word.replace("_", ""): role for role, words in KEYS.items() for word in words.split()}
_CORNERS: dict[tuple[str, ...], Order] = {
    ("x", "y", "w", "h"): "xywh",
    ("x", "y", "x2", "y2"): "xyxy",
    ("x", "y"): "xyxy",
}
_MAX_DEPTH = 6

_N = r"-?\d{1,7}(?:\.\d{0,15})?"
_NUMBER = re.compile(_N)
_CALLED = re.compile(
    r"(?:\w{1,20}\.)?(?:click|tap|left_click|move_?to)\s?(?:\((?:point|start_box)\s?=\s?['\"]|(?=\())"
)
_BRACKETS = re.compile(r"[\[\]()]|</?point>|<\|box_(?:start|end)\|>")
_GROUP = re.compile(
    rf"\s*(?:x\s?[=:]\s?)?{_N}(?:px)?(?:[,;\s]\s{{0,4}}(?:y\s?[=:]\s?)?{_N}(?:px)?){{1,3}}\s*"
)
_BETWEEN = re.compile(r"[\s,;'\"]*(?:to|->?)?\s*")
# Forms of model families: an object in marks, with its name before it or not; four or two location tokens; a
# tag of points, as Molmo writes it.
_MARKED = re.compile(
    r"(?:<(?:ref|p|phrase|\|object_ref_start\||\|ref\|)>([^<>]{1,160})<(?:/|\|object_ref_end\|>|\|/ref\|>)"
    r"[a-z]{0,6}>?)?\s{0,4}<(b?box|point|\|(?:box|point)_start\||\|det\||quad)>([^<>]{3,200})"
    r"(?:</(?:b?box|point|quad)>|<\|(?:box_end|point_end|/det)\|>)"
)
_TOKEN = r"<\|?(?:loc|bin|coord|[xy])?_?\d{1,4}\|?>\s?"
_TOKENS = re.compile(rf"((?:{_TOKEN}){{4}}|(?:{_TOKEN}){{2}})([\w -]{{0,64}})")
_PALIGEMMA = re.compile(r"(?:<loc\d{4}>\s?){4}")
_TAG = re.compile(r"<points?\s([^<>]{5,400})/?>(?:[^<>]{0,160}</points?>)?")
_XY = re.compile(rf"\bx(\d{{0,2}})\s?=\s?\"({_N})\"\s{{1,4}}y\1\s?=\s?\"({_N})\"")
_ALT = re.compile(r"\balt=\"([^\"]{1,160})\"")


def read(text: str, kind: Kind, order_of: OrderOf = as_corners) -> list[Region]:
    """The objects of a text; `kind` is what numbers without a key mean.

    Raises:
        Unread: It holds none, more than `MAX_REGIONS`, or anything else beside them.
    """
    value = decoded(text, first_value, literal) if text[:1] in ("[", "{") else None
    regions = regions_in(value or text, kind, order_of)
    regions = regions or regions_in(_marked(text), kind, order_of)
    if len(regions) > MAX_REGIONS:
        raise Unread(f"{len(regions)} objects, at most {MAX_REGIONS} are read")
    if not regions:
        what = "box" if kind == "box" else "box or point"
        raise Unread(text, f"{what} ([x1, y1, x2, y2], [x, y], or JSON with keys such as bbox_2d, point_2d)")
    return regions


def says_nothing(value: Json) -> bool:
    """True if a text, or a decoded value, says that nothing is there."""
    if isinstance(value, str):
        held = decoded(value, strict, otherwise=value)
        return value.casefold() in NOTHING or (not isinstance(held, str) and says_nothing(held))
    if isinstance(value, Mapping):
        return all(says_nothing(inner) for key, inner in value.items() if key != "bbox_type")
    return all(map(says_nothing, value)) if isinstance(value, (list, tuple)) else value is None


@lru_cache(maxsize=1024)
def plain_key(key: str) -> str:
    """A key without case and punctuation."""
    return "".join(filter(str.isalnum, key[:64].casefold()))


def regions_in(value: Json, kind: Kind, order_of: OrderOf = as_corners) -> list[Region]:
    """The objects in a decoded JSON value."""
    return list(_walk(value, kind, order_of))


def _numbers_of(text: str) -> list[list[float]]:
    """Read a text as groups of two to four numbers between brackets; empty for anything else."""
    groups = []
    for part in _BRACKETS.split(_CALLED.sub("", text, count=1)):
        if _GROUP.fullmatch(part):
            groups.append([float(number) for number in _NUMBER.findall(part)])
        elif not _BETWEEN.fullmatch(part):
            return []
    return groups


def _marked(text: str) -> list[dict[str, Json]]:
    """Objects in a family's own marks, as JSON would have them, where these are all there is."""
    for pattern, objects in ((_MARKED, _in_marks), (_TOKENS, _of_tokens), (_TAG, _of_tag)):
        if matches := list(pattern.finditer(text)):
            whole = not pattern.sub("", text).strip(" ,;[]\r\n\t")
            return [item for each in matches for item in objects(each)] if whole else []
    return []


def _in_marks(found: re.Match[str]) -> list[dict[str, Json]]:
    return [{"label": (found[1] or "").strip(), "points" if "point" in found[2] else "box": found[3]}]


def _of_tokens(found: re.Match[str]) -> list[dict[str, Json]]:
    numbers = re.findall(r"\d+", found[1])
    if _PALIGEMMA.fullmatch(found[1]):  # <loc0123> tokens write y before x
        return [{"label": found[2].strip(), **dict(zip(("y", "x", "y2", "x2"), numbers, strict=True))}]
    return [{"label": found[2].strip(), "location": numbers}]


def _of_tag(found: re.Match[str]) -> list[dict[str, Json]]:
    label = _ALT.search(found[1])
    return [{"x": x, "y": y, "label": label[1] if label else ""} for _, x, y in _XY.findall(found[1])]


def _walk(value: Json, kind: Kind, order_of: OrderOf, key: str = "", depth: int = 0) -> Iterator[Region]:
    """Regions in a decoded JSON value that stands under a key, depth first."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, (list, tuple)):
        if numbers := _numbers(value, kind):
            yield region_of_numbers(numbers, order=order_of(key))
        else:
            for item in value:
                yield from _walk(item, kind, order_of, key, depth + 1)
    elif isinstance(value, str):
        groups = _numbers_of(value)
        yield from _walk(groups[0] if len(groups) == 1 else groups, kind, order_of, key, depth + 1)
    elif isinstance(value, Mapping):
        yield from _described(value, kind, order_of, depth)


def _numbers(value: Sequence[Any], kind: Kind) -> list[float]:
    """The numbers of a list that is a box or a point, else empty; texts count: ``["10", "20"]``."""
    if kind != "both" and len(value) == 2 and all(isinstance(pair, (list, tuple)) for pair in value):
        value = [number for pair in value if len(pair) == 2 for number in pair]
    return _floats(value) if len(value) == 4 or (len(value) == 2 and kind != "box") else []


def _floats(values: Sequence[Any]) -> list[float]:
    """The values as numbers; empty if one is not a number."""
    try:
        return [] if bool in map(type, values) else list(map(float, values))
    except (TypeError, ValueError, OverflowError):
        return []


def _described(value: Mapping[str, Any], kind: Kind, order_of: OrderOf, depth: int) -> list[Region]:
    """The object that a mapping describes, those that its parallel lists do, or those inside of it."""
    roles = {key: _ROLES.get(plain_key(str(key)), "") for key in value}
    by_role = {roles[key]: value[key] for key in reversed(list(value)) if value[key] is not None}
    regions = _named(by_role, depth)
    for key, inner in value.items():
        if roles[key] == "items" or (roles[key] == "place" and not isinstance(inner, Mapping)):
            regions += _walk(inner, "both" if "point" in key else "any", order_of, key, depth + 1)
    if not regions:
        inside = [inner for key, inner in value.items() if not (roles[key] or isinstance(inner, str))]
        regions = [region for inner in inside for region in _walk(inner, kind, order_of, "", depth + 1)]
    boxes = [region for region in regions if region.is_box]
    if 2 * len(boxes) == len(regions):  # a box and a point of the same object
        regions = [region for region in regions if region.is_box is (kind != "both")]
    names, place = by_role.get("label"), by_role.get("place")
    if isinstance(names, int) and isinstance(place, list) and not _numbers(place, "any"):
        names = None  # a number cannot name a list of boxes
    return _named_by(regions, names, by_role.get("image"))


def _named_by(regions: list[Region], names: Json, images: Json) -> list[Region]:
    """The objects with their names and images: one for all, or one for each in the same order."""
    listed = list(names) if isinstance(names, (list, tuple)) else [names]
    listed = listed * len(regions) if len(listed) == 1 else listed
    labels = listed if len(listed) == len(regions) else [""] * len(regions)
    numbers = [*images] if isinstance(images, (list, tuple)) else [images] * len(regions)
    numbers += [0] * len(regions)  # ms-swift fills up with 0, too
    return [
        replace(
            region,
            label=region.label or _name(name),
            image=image if isinstance(image, int) else region.image,
        )
        for region, name, image in zip(regions, labels, numbers, strict=False)
    ]


def _name(name: Json) -> str:
    return str(name) if isinstance(name, (str, int)) else ""


def _named(given: Mapping[str, Json], depth: int) -> list[Region]:
    """The box or the point that keys such as ``x1``, ``width`` and ``top_left`` name; else empty."""
    named = [given.get(role) for role in ("first", "last")]
    ends = [end for each in named for end in _walk(each, "both", as_corners, depth=depth + 1)]
    if len(ends) == 2:
        return [region_of_numbers([number for end in ends for number in pointed_at(end.place)])]
    for roles, order in _CORNERS.items():
        if given.keys() >= set(roles) and (numbers := _floats([given[role] for role in roles])):
            return [region_of_numbers(numbers, order=order)]
    return []
