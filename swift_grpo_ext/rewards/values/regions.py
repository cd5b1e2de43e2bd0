"""Boxes and points: JSON with the keys of `KEYS`, numbers in brackets, or a family's own marks.

>>> [region.place for region in read('[{"bbox_2d": [1, 2, 3, 4], "label": "cat"}]', "box")]
[(1.0, 2.0, 3.0, 4.0)]
>>> [read(text, "box")[0].place for text in (
...     "[1, 2, 3, 4]", "(1,2),(3,4)", "<box>[[1, 2, 3, 4]]</box>", "<|box_start|>(1,2),(3,4)<|box_end|>",
...     '{"top_left": [1, 2], "bottom_right": [3, 4]}', "<loc0002><loc0001><loc0004><loc0003>",
... )] == [(1, 2, 3, 4)] * 6
True
>>> [read(text, "both")[0].place for text in (
...     "[5, 6]", "(5, 6)", "x=5, y=6", '{"point_2d": [5, 6]}', "click(5, 6)",
...     "click(point='<point>5 6</point>')",
... )] == [(5, 6)] * 6
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
    "items": "objects boxes bboxes bounding_boxes points detections annotations results items answer "
    "final_answer arguments",
    "label": "label labels category categories category_name class classes class_name name names ref refs "
    "object description phrase expression caption item entity text_content 标签 类别 名称",
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
# Forms of model families: an object in marks, with its name before it or not; four or two location tokens.
_MARKED = re.compile(
    r"(?:<(?:ref|p|phrase|\|object_ref_start\||\|ref\|)>([^<>]{1,160})<(?:/|\|object_ref_end\|>|\|/ref\|>)"
    r"[a-z]{0,6}>?)?\s{0,4}<(b?box|point|\|(?:box|point)_start\||\|det\||quad)>([^<>]{3,200})"
    r"(?:</(?:b?box|point|quad)>|<\|(?:box_end|point_end|/det)\|>)"
)
_TOKEN = r"<\|?(?:loc|bin|coord|[xy])?_?\d{1,4}\|?>\s?"
_TOKENS = re.compile(rf"((?:{_TOKEN}){{4}}|(?:{_TOKEN}){{2}})([\w -]{{0,64}})")
_PALIGEMMA = re.compile(r"(?:<loc\d{4}>\s?){4}")


def read(value: Json, kind: Kind, order_of: OrderOf = as_corners) -> list[Region]:
    """The objects of a text, or of decoded JSON; `kind` is what numbers without a key mean.

    Raises:
        Unread: It holds none, more than `MAX_REGIONS`, or anything else beside them.
    """
    text = value if isinstance(value, str) else ""
    held = decoded(text, first_value, literal, otherwise=text) if text[:1] in ("[", "{") else value
    regions = list(_walk(held, kind, order_of)) or list(_walk(_marked(text), kind, order_of))
    if len(regions) > MAX_REGIONS:
        raise Unread(f"{len(regions)} objects, at most {MAX_REGIONS} are read")
    if not regions:
        what = "box" if kind == "box" else "box or point"
        keys = "JSON with keys such as bbox_2d, point_2d"
        raise Unread(str(value), f"{what} ([x1, y1, x2, y2], [x, y], or {keys})")
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


def _numbers_of(text: str) -> list[list[float]]:
    """Read a text as groups of two to four numbers between brackets; empty for anything else."""
    groups = []
    for part in _BRACKETS.split(_CALLED.sub("", text, count=1)):
        if _GROUP.fullmatch(part):
            groups.append([float(number) for number in _NUMBER.findall(part)])
        elif not _BETWEEN.fullmatch(part):
            return []
    return groups


def _marked(text: str) -> list[Json]:
    """Objects in a family's own marks, as JSON would have them, where these are all there is."""
    for pattern, described in ((_MARKED, _in_marks), (_TOKENS, _of_tokens)):
        if matches := list(pattern.finditer(text)):
            whole = not pattern.sub("", text).strip(" ,;[]\r\n\t")
            return [described(each) for each in matches] if whole else []
    return []


def _in_marks(found: re.Match[str]) -> Json:
    return {"label": (found[1] or "").strip(), "points" if "point" in found[2] else "box": found[3]}


def _of_tokens(found: re.Match[str]) -> Json:
    numbers = re.findall(r"\d+", found[1])
    if _PALIGEMMA.fullmatch(found[1]):  # <loc0123> tokens write y before x
        return {"label": found[2].strip(), **dict(zip(("y", "x", "y2", "x2"), numbers, strict=True))}
    return {"label": found[2].strip(), "location": numbers}


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
    """The object that a mapping describes, or those of its lists, with their names."""
    by_role: dict[str, Json] = {}
    regions: list[Region] = []
    for key, inner in value.items():
        role = _ROLES.get(plain_key(str(key)), "")
        if inner is not None:
            by_role.setdefault(role, inner)
        if role == "items" or (role == "place" and not isinstance(inner, Mapping)):
            regions += _walk(inner, "both" if "point" in key else "any", order_of, key, depth + 1)
    regions += _named(by_role, depth)
    # Of a box and a point of the same object, the one that is asked for.
    regions = [region for region in regions if region.is_box is (kind != "both")] or regions
    given = by_role.get("label")
    names = list(given) if isinstance(given, (list, tuple)) else [given]
    names = names * len(regions) if len(names) == 1 else names  # one name for all, or one for each
    if len(names) != len(regions):
        return regions
    return [
        replace(region, label=region.label or _name(name))
        for region, name in zip(regions, names, strict=True)
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
