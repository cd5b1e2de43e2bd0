"""Boxes and points in decoded JSON: tables of the keys that models and data sets use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from swift_grpo_ext.rewards.region import ANSWER, Convention, Region, region_of_numbers
from swift_grpo_ext.rewards.text_coordinates import BOX_SHAPES, NAMES, POINT_SHAPES, Kind, shaped, written_out

_MAX_DEPTH = 6
_MAX_TEXT = 256

_KEYS = {
    "place": "bbox_2d bbox box box_2d bounding_box bndbox rect bounds coordinates coords coordinate coord"
    " position point_2d point center click_point point_1 points_1 start_box location xyxy 边界框 坐标",
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


def regions_in(value: object, kind: Kind, convention: Convention = ANSWER) -> list[Region]:
    """The objects in a decoded JSON value; `kind` is what a list without keys means."""
    return list(_walk(value, kind, convention, "", 0))


def _walk(value: object, kind: Kind, convention: Convention, label: str, depth: int) -> Iterator[Region]:
    """Regions in a decoded JSON value, depth first."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, (list, tuple)):
        numbers = _corner_numbers(value, kind)
        if numbers is not None:
            yield region_of_numbers(numbers, label, convention)
            return
        for inner in value:
            yield from _walk(inner, kind, convention, label, depth + 1)
    elif isinstance(value, (dict, Mapping)):  # last: asking an abstract class costs more
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


def _columns(value: Mapping[str, Any]) -> list[dict[str, object]] | None:
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


def _is_rows(value: Sequence[object]) -> bool:
    return bool(value) and all(isinstance(item, (list, tuple)) for item in value)


def _corner_numbers(value: Any, kind: Kind) -> Sequence[object] | None:
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


def is_numbers(value: object, length: int) -> bool:
    """Whether a value is a list of so many numbers."""
    if not isinstance(value, (list, tuple)) or len(value) != length:
        return False
    for number in value:  # noqa: SIM110  a loop, for this runs for every box
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            return False
    return True


def _region_of_mapping(value: Mapping[str, object], label: str, convention: Convention) -> Region | None:
    found: dict[str, Any] = {}
    coordinates: dict[str, float] = {}
    for key, inner in value.items():
        role = role_of(key) if isinstance(key, str) else ""
        if inner is None or not role:
            continue
        if role == "place":
            place = _place(inner, key, convention)
            if place is not None:
                found.setdefault("box" if place.box is not None else "point", place)
        elif role in ("label", "score", "image", "first", "last"):
            found.setdefault(role, inner)
        elif role != "items":
            number = _number(inner)
            if number is not None:
                coordinates[role] = number
    box = found.get("box") or _between(found.get("first"), found.get("last"), convention)
    box = box or _named(coordinates, BOX_SHAPES)
    point = found.get("point") or (None if box else _named(coordinates, POINT_SHAPES))
    if box is None and point is None:
        return None
    own, image = found.get("label"), found.get("image")
    confidence = _number(found.get("score"))
    return Region(
        box=box.box if box else None,
        point=point.point if point else None,
        label=(str(own) if isinstance(own, (str, int)) else "") or label,
        confidence=confidence if confidence is not None and abs(confidence) < 1e9 else None,
        broken=bool((box and box.broken) or (point and point.broken)),
        reordered=bool(box and box.reordered),
        image=image if isinstance(image, int) else None,
    )


def _between(first: object, last: object, convention: Convention) -> Region | None:
    """The box between its first and its last corner."""
    corners = [None if at is None else _place(at, "point", convention) for at in (first, last)]
    points = [corner.point for corner in corners if corner is not None and corner.point is not None]
    return region_of_numbers((*points[0], *points[1])) if len(points) == 2 else None


def _named(coordinates: Mapping[str, float], shapes: tuple[tuple[str, ...], ...]) -> Region | None:
    numbers = shaped(coordinates, shapes) if coordinates else None
    return None if numbers is None else region_of_numbers(numbers, "", ANSWER, named=True)


def _place(value: object, key: str, convention: Convention) -> Region | None:
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


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value) if not isinstance(value, str) or len(value) < 24 else None
    except (ValueError, OverflowError):
        return None
