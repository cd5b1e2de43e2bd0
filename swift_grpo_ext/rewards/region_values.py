"""Boxes and points in decoded JSON, by the keys that models and data sets use (``words.json``)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from swift_grpo_ext.rewards.geometry import OrderOf, Region, as_corners, region_of_numbers
from swift_grpo_ext.rewards.text_coordinates import BOX_SHAPES, NAMES, POINT_SHAPES, Kind, shaped, written_out
from swift_grpo_ext.rewards.words import meanings

_MAX_DEPTH = 6
_MAX_TEXT = 256
_ROLES = {name.replace("_", ""): role for name, role in meanings("place_keys").items()}
_COORDINATES = {name.replace("_", "").replace("-", ""): role for name, role in NAMES.items()}
_LENGTHS = {"box": (4,), "point": (2,), "both": (2, 4)}
_BESIDE = ("label", "score", "image")


@lru_cache(maxsize=4096)
def role_of(key: str) -> str:
    """What a key stands for, whatever its case and punctuation; "" for one that is not known."""
    plain = "".join(filter(str.isalnum, key[:64].casefold()))
    return _ROLES.get(plain) or _COORDINATES.get(plain, "")


def regions_in(value: object, kind: Kind, order_of: OrderOf = as_corners) -> list[Region]:
    """The objects in a decoded JSON value; `kind` is what a list without keys means."""
    return list(_walk(value, kind, order_of, "", 0))


def _walk(value: object, kind: Kind, order_of: OrderOf, label: str, depth: int) -> Iterator[Region]:
    """Regions in a decoded JSON value, depth first."""
    if depth > _MAX_DEPTH:
        return
    inner: list[tuple[object, str]] = []
    if isinstance(value, (list, tuple)):
        if numbers := (_corners(value) if kind == "box" else None) or _numbers(value, _LENGTHS[kind]):
            yield region_of_numbers(numbers, label, order_of)
            return
        inner = [(item, label) for item in value]
    elif isinstance(value, (dict, Mapping)):  # last: asking an abstract class costs more
        if (rows := _columns(value)) is not None:
            inner = [(row, label) for row in rows]
        elif region := _region_of_mapping(value, label, order_of):
            yield region
            return
        else:
            inner = _named_parts(value, label)
    for item, name in inner:
        yield from _walk(item, kind, order_of, name, depth + 1)


def _named_parts(value: Mapping[str, object], label: str) -> list[tuple[object, str]]:
    """What a mapping holds, with the label that it or its key gives."""
    roles = {key: role_of(str(key)) for key in value}
    own = next((value[key] for key, role in roles.items() if role == "label"), None)
    around = own if isinstance(own, str) else label
    return [
        (inner, around if roles[key] in ("place", "items") else str(key))
        for key, inner in value.items()
        if roles[key] not in _BESIDE
    ]


def _columns(value: Mapping[str, object]) -> list[dict[str, object]] | None:
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
    others = {role_of(str(key)): (key, inner) for key, inner in value.items() if key != places}
    corners = len(given) == 2 and all(len(pair) == 2 for pair in given) and "point" not in str(places)
    if corners and not isinstance(others.get("label", ("", ""))[1], (list, tuple)):
        return None
    rows: list[dict[str, object]] = [{places if len(row) == 4 else "bbox": row} for row in given]
    for role in _BESIDE:
        key, inner = others.get(role, ("", None))
        if not isinstance(inner, (str, list, tuple)):
            continue
        items = [inner] if isinstance(inner, str) else list(inner)
        if role == "label" and len(items) == 1:  # one name for all
            items *= len(rows)
        elif role == "image":  # as ms-swift fills it
            items += [0] * (len(rows) - len(items))
        if len(items) == len(rows):
            for row, item in zip(rows, items, strict=True):
                row[key] = item
    return rows


def _corners(value: Sequence[object]) -> list[float] | None:
    """The four numbers of two pairs."""
    pairs = [_numbers(item, (2,)) for item in value] if len(value) == 2 else []
    return [*pairs[0], *pairs[1]] if len(pairs) == 2 and pairs[0] and pairs[1] else None


def _numbers(value: object, lengths: tuple[int, ...]) -> list[float] | None:
    """The items of a list of such a length, if all are numbers, or texts of numbers: ``["10", "20"]``."""
    if not isinstance(value, (list, tuple)) or len(value) not in lengths:
        return None
    if len({isinstance(item, str) for item in value}) == 2:
        return None
    numbers = [number for item in value if (number := _number(item)) is not None]
    return numbers if len(numbers) == len(value) else None


def _region_of_mapping(value: Mapping[str, object], label: str, order_of: OrderOf) -> Region | None:
    found: dict[str, object] = {}
    box = point = None
    coordinates: dict[str, float] = {}
    for key, inner in value.items():
        role = role_of(key) if isinstance(key, str) else ""
        if inner is None or role in ("", "items"):
            continue
        if role == "place":
            place = _place(inner, key, order_of)
            box = box or (place if place and place.box else None)
            point = point or (place if place and not place.box else None)
        elif role in (*_BESIDE, "first", "last"):
            found.setdefault(role, inner)
        elif (number := _number(inner)) is not None:
            coordinates[role] = number
    ends = [_place(found[at], "point", order_of) for at in ("first", "last") if at in found]
    corners = [end.point for end in ends if end is not None and end.point is not None]
    if box is None and len(corners) == 2:
        box = region_of_numbers((*corners[0], *corners[1]))
    box = box or _named(coordinates, BOX_SHAPES)
    point = point or (None if box else _named(coordinates, POINT_SHAPES))
    if box is None and point is None:
        return None
    own, image, confidence = found.get("label"), found.get("image"), _number(found.get("score"))
    return replace(
        box or Region(),
        point=point.point if point else None,
        label=(str(own) if isinstance(own, (str, int)) else "") or label,
        confidence=confidence if confidence is not None and abs(confidence) < 1e9 else None,
        broken=any(place.broken for place in (box, point) if place),
        image=image if isinstance(image, int) else None,
    )


def _named(coordinates: Mapping[str, float], shapes: tuple[tuple[str, ...], ...]) -> Region | None:
    numbers = shaped(coordinates, shapes) if coordinates else None
    return None if numbers is None else region_of_numbers(numbers, named=True)


def _place(value: object, key: str, order_of: OrderOf) -> Region | None:
    """The box or the point under a key that stands for a place."""
    if isinstance(value, str) and len(value) <= _MAX_TEXT:
        written = written_out(value.strip(), "both")
        fours = [one for one in written if len(one.numbers) == 4]
        if len(written) == 2 and not fours and "point" not in key:
            return region_of_numbers((*written[0].numbers, *written[1].numbers), named=True)
        one = (fours or written)[0] if len(fours or written) == 1 else None
        if one is None or ("box" in key and len(one.numbers) == 2):
            return None
        return region_of_numbers(one.numbers, "", order_of, key, one.named)
    if isinstance(value, (dict, Mapping)):
        return _region_of_mapping(value, "", order_of)
    if not isinstance(value, (list, tuple)):
        return None
    if len(value) == 1 and isinstance(value[0], (list, tuple)):
        return _place(value[0], key, order_of)
    if "point" not in key and (corners := _corners(value)):
        return region_of_numbers(corners)
    numbers = _numbers(value, _LENGTHS["both"])
    return None if numbers is None else region_of_numbers(numbers, "", order_of, key)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value) if not isinstance(value, str) or len(value) < 24 else None
    except ValueError:
        return None
    except OverflowError:
        return math.inf
