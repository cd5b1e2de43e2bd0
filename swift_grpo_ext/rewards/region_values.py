"""Boxes and points in decoded JSON: tables of the keys that models and data sets use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

from swift_grpo_ext.rewards.geometry import Box, Point, centre
from swift_grpo_ext.rewards.text_coordinates import (
    BOX_SHAPES,
    NAMES,
    POINT_SHAPES,
    Kind,
    shaped,
    written_out,
)

Order: TypeAlias = Literal["xyxy", "xywh", "yxyx"]
ORDERS: tuple[Order, ...] = get_args(Order)
MAX_COORDINATE = 1e7
_MAX_DEPTH = 6
_MAX_TEXT = 256

_KEYS = {
    "place": "bbox_2d bbox box box_2d bounding_box bndbox rect bounds coordinates coords coordinate coord"
    " position point_2d point center click_point start_box location xyxy 边界框 坐标",
    "label": "label labels category categories category_name class classes class_name name names ref refs"
    " object description phrase expression caption item entity text_content 标签 类别 名称",
    "score": "score scores confidence conf probability prob 置信度",
    "items": "objects boxes bboxes bounding_boxes points detections annotations results items",
    "image": "image_id image_index image_idx",
    "first": "top_left lefttop upper_left 左上角 左上",
    "last": "bottom_right rightbottom lower_right 右下角 右下",
}
_ROLES = {name.replace("_", ""): role for role, names in _KEYS.items() for name in names.split()}
_COORDINATES = {name.replace("_", "").replace("-", ""): role for name, role in NAMES.items()}


@lru_cache(maxsize=4096)
def role_of(key: str) -> str:
    """What a key stands for, whatever its case and punctuation; "" for one that is not known."""
    plain = "".join(character for character in key[:64].casefold() if character.isalnum())
    return _ROLES.get(plain) or _COORDINATES.get(plain, "")


@dataclass(frozen=True)
class Convention:
    """How lists of numbers without names are written.

    Attributes:
        order: Of four numbers; under yxyx, points are y, x.
        gold: They are a data set's. Of a model's answers, ``bbox_2d`` is Qwen's and always holds corners.
        box_2d: Order under the key ``box_2d``, if it is another one.
    """

    order: Order = "xyxy"
    gold: bool = False
    box_2d: Order | None = None

    def under(self, key: str) -> Order:
        """The order of a list under this key."""
        if key == "bbox_2d" and not self.gold and self.order == "xywh":
            return "xyxy"
        return (self.box_2d or self.order) if key == "box_2d" else self.order


ANSWER = Convention()


@dataclass(frozen=True)
class Region:
    """One object of an answer. Coordinates that are no finite numbers become a box or point at the origin.

    Attributes:
        box: (left, top, right, bottom) with ordered corners, or None.
        point: (x, y), or None.
        label: As written, "" if none.
        confidence: As written if it is a number, else None.
        broken: Whether a coordinate was no finite number.
        reordered: Whether the corners stood in another order.
        image: Number of the image that it says it is in, or None.
    """

    box: Box | None = None
    point: Point | None = None
    label: str = ""
    confidence: float | None = None
    broken: bool = field(default=False, compare=False)
    reordered: bool = field(default=False, compare=False)
    image: int | None = field(default=None, compare=False)


def pointed_at(region: Region) -> Point:
    """The point of a region: its own, or the middle of its box."""
    if region.point is not None:
        return region.point
    assert region.box is not None
    return centre(region.box)


def regions_in(value: Any, kind: Kind, convention: Convention = ANSWER) -> list[Region]:
    """The objects in a decoded JSON value.

    Args:
        value: The value.
        kind: What a list without keys means.
        convention: The order of its numbers.
    """
    return list(_walk(value, kind, convention, "", 0))


def _walk(value: Any, kind: Kind, convention: Convention, label: str, depth: int) -> Iterator[Region]:
    """Regions in a decoded JSON value, depth first."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, (dict, Mapping)):  # dict first: asking an abstract class costs more
        rows = _columns(value)
        if rows is not None:
            for row in rows:
                yield from _walk(row, kind, convention, label, depth + 1)
            return
        region = _region_of_mapping(value, label, convention)
        if region is not None:
            yield region
            return
        roles = {key: role_of(str(key)) for key in value}
        own = next((value[key] for key, role in roles.items() if role == "label"), None)
        around = own if isinstance(own, str) else label
        for key, inner in value.items():
            if roles[key] not in ("label", "score", "image"):
                named = roles[key] in ("place", "items")
                yield from _walk(inner, kind, convention, around if named else str(key), depth + 1)
    elif isinstance(value, (list, tuple)):
        numbers = _corner_numbers(value, kind)
        if numbers is not None:
            yield region_of_numbers(numbers, label, convention)
            return
        for inner in value:
            yield from _walk(inner, kind, convention, label, depth + 1)


def _columns(value: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Objects written as parallel lists, one object each: ``{"bbox": [[...], ...], "label": [...]}``."""
    listed = [key for key, inner in value.items() if isinstance(inner, (list, tuple)) and _is_rows(inner)]
    places = next((key for key in listed if role_of(str(key)) in ("place", "items")), None)
    if places is None:
        return None
    given = value[places]
    others = {role_of(str(key)): (key, inner) for key, inner in value.items() if key != places}
    corners = len(given) == 2 and all(len(pair) == 2 for pair in given) and "point" not in str(places)
    if corners and not isinstance(others.get("label", ("", ""))[1], (list, tuple)):
        return None
    rows: list[dict[str, Any]] = [{places if len(row) == 4 else "bbox": row} for row in given]
    for role in ("label", "score", "image"):
        key, inner = others.get(role, ("", None))
        if isinstance(inner, str):  # one name for all
            inner = [inner]
        if not isinstance(inner, (list, tuple)):
            continue
        if role == "label" and len(inner) == 1:
            inner = [inner[0]] * len(rows)
        elif role == "image":  # as ms-swift fills it
            inner = [*inner, *[0] * (len(rows) - len(inner))]
        if len(inner) == len(rows):
            for row, item in zip(rows, inner, strict=True):
                row[key] = item
    return rows


def _is_rows(value: Sequence[Any]) -> bool:
    return bool(value) and all(isinstance(item, (list, tuple)) for item in value)


def _corner_numbers(value: Any, kind: Kind) -> Sequence[Any] | None:
    """The numbers of a list that is itself a box or a point."""
    length = len(value)
    if length == 2 and kind == "box" and is_numbers(value[0], 2) and is_numbers(value[1], 2):
        return [*value[0], *value[1]]
    if length == (2 if kind == "point" else 4) or (length == 2 and kind == "both"):
        if is_numbers(value, length):
            return value
        return _numbers_of_texts(value)
    return None


def _numbers_of_texts(value: Sequence[Any]) -> list[float] | None:
    """Numbers written as texts: ``["10", "20"]``."""
    if not all(isinstance(item, str) and len(item) < 24 for item in value):
        return None
    try:
        return [float(item) for item in value]
    except ValueError:
        return None


def is_numbers(value: Any, length: int) -> bool:
    """Whether a value is a list of so many numbers."""
    if not isinstance(value, (list, tuple)) or len(value) != length:
        return False
    for number in value:  # noqa: SIM110  a loop, for this runs for every box
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            return False
    return True


def _region_of_mapping(value: Mapping[str, Any], label: str, convention: Convention) -> Region | None:
    box: Region | None = None
    point: Region | None = None
    confidence: float | None = None
    image: int | None = None
    own = ""
    coordinates: dict[str, float] = {}
    corners: dict[str, Any] = {}
    for key, inner in value.items():
        role = role_of(key) if isinstance(key, str) else ""
        if inner is None or not role:
            continue
        if role == "place":
            found = _place(inner, key, convention)
            if found is not None and found.box is not None:
                box = box or found
            elif found is not None:
                point = point or found
        elif role == "label":
            own = own or (str(inner) if isinstance(inner, (str, int)) else "")
        elif role == "score":
            number = _number(inner)
            confidence = number if number is not None and abs(number) < 1e9 else confidence
        elif role == "image":
            image = inner if isinstance(inner, int) else image
        elif role in ("first", "last"):
            corners[role] = inner
        elif role != "items":
            number = _number(inner)
            if number is not None:
                coordinates[role] = number
    if box is None and len(corners) == 2:
        first, last = (_place(corners[name], "point", convention) for name in ("first", "last"))
        if first is not None and last is not None and first.point and last.point:
            box = region_of_numbers((*first.point, *last.point))
    if coordinates:
        box = box or _named(coordinates, BOX_SHAPES)
        point = point or (_named(coordinates, POINT_SHAPES) if box is None else None)
    if box is None and point is None:
        return None
    return Region(
        box=box.box if box else None,
        point=point.point if point else None,
        label=own or label,
        confidence=confidence,
        broken=bool((box and box.broken) or (point and point.broken)),
        reordered=bool(box and box.reordered),
        image=image,
    )


def _named(coordinates: Mapping[str, float], shapes: tuple[tuple[str, ...], ...]) -> Region | None:
    numbers = shaped(coordinates, shapes)
    return None if numbers is None else region_of_numbers(numbers, "", ANSWER, named=True)


def _place(value: Any, key: str, convention: Convention) -> Region | None:
    """The box or the point under a key that stands for a place."""
    if isinstance(value, str) and len(value) <= _MAX_TEXT:
        written = written_out(value.strip(), "both")
        fours = [one for one in written if len(one.numbers) == 4]
        if len(written) == 2 and not fours and "point" not in key:
            return region_of_numbers((*written[0].numbers, *written[1].numbers), "", ANSWER, named=True)
        one = (fours or written)[0] if len(fours or written) == 1 else None
        if one is None or ("box" in key and len(one.numbers) == 2):
            return None
        return region_of_numbers(one.numbers, "", convention, key, one.named)
    if isinstance(value, (dict, Mapping)):
        return _region_of_mapping(value, "", convention)
    if not isinstance(value, (list, tuple)):
        return None
    if len(value) == 1 and isinstance(value[0], (list, tuple)):
        return _place(value[0], key, convention)
    if len(value) == 2 and all(is_numbers(pair, 2) for pair in value) and "point" not in key:
        return region_of_numbers((*value[0], *value[1]), "", ANSWER)
    if len(value) not in (2, 4):
        return None
    numbers = value if is_numbers(value, len(value)) else _numbers_of_texts(value)
    return None if numbers is None else region_of_numbers(numbers, "", convention, key)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value) if not isinstance(value, str) or len(value) < 24 else None
    except (ValueError, OverflowError):
        return None


def region_of_numbers(
    numbers: Sequence[Any],
    label: str = "",
    convention: Convention = ANSWER,
    key: str = "",
    named: bool = False,
) -> Region:
    """Four numbers as a box, two as a point.

    Args:
        numbers: Of any size; `Region` says what becomes of those that are not finite.
        label: The object's name.
        convention: Their order.
        key: The key that they stand under.
        named: Their names say what each is, so that they have no order to be told.
    """
    for number in numbers:
        if not -MAX_COORDINATE <= number <= MAX_COORDINATE:
            zeros = (0.0,) * len(numbers)
            at = {"box": zeros} if len(numbers) == 4 else {"point": zeros}
            return Region(**at, label=label, broken=True)  # type: ignore[arg-type]
    order = "xyxy" if named else convention.under(key)
    if len(numbers) == 2:
        x, y = numbers
        return Region(point=(float(y), float(x)) if order == "yxyx" else (float(x), float(y)), label=label)
    a, b, c, d = map(float, numbers)
    if order == "yxyx":
        a, b, c, d = b, a, d, c
    elif order == "xywh":
        c, d = a + c, b + d
    ordered = (min(a, c), min(b, d), max(a, c), max(b, d))
    return Region(box=ordered, label=label, reordered=ordered != (a, b, c, d))
