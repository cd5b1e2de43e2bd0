"""Boxes and points in decoded JSON, by the keys that models and data sets use."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from swift_grpo_ext.rewards.reading.coordinates import (
    NAMES,
    Kind,
    shaped,
    written_out,
)
from swift_grpo_ext.rewards.reading.json_text import Json
from swift_grpo_ext.rewards.reading.region import OrderOf, Region, as_corners, region_of_numbers
from swift_grpo_ext.rewards.reading.schema import by_word
from swift_grpo_ext.rewards.reading.words import PLACES

_MAX_DEPTH = 6
_MAX_TEXT = 256
_ROLES = {name.replace("_", ""): role for name, role in by_word(PLACES.keys).items()}
_COORDINATES = {name.replace("_", "").replace("-", ""): role for name, role in NAMES.items()}
_COORDINATE_ROLES = frozenset(_COORDINATES.values())
_LENGTHS = {"box": (4,), "point": (2,), "both": (2, 4)}
_BESIDE = ("label", "score", "image")


@lru_cache(maxsize=4096)
def role_of(key: str) -> str:
    """What a key stands for, whatever its case and punctuation; "" for one that is not known."""
    plain = "".join(filter(str.isalnum, key[:64].casefold()))
    return _ROLES.get(plain) or _COORDINATES.get(plain, "")


def regions_in(value: Json, kind: Kind, order_of: OrderOf = as_corners) -> list[Region]:
    """The objects in a decoded JSON value; `kind` is what a list without keys means."""
    return list(_walk(value, kind, order_of, "", 0))


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
    elif isinstance(value, Mapping):  # last: asking an abstract class costs more
        if (rows := _columns(value)) is not None:
            inner = [(row, label) for row in rows]
        elif region := _region_of_mapping(value, label, order_of):
            yield region
            return
        else:
            inner = _named_parts(value, label)
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
        if roles[key] not in _BESIDE
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


def _region_of_mapping(value: Mapping[str, Json], label: str, order_of: OrderOf) -> Region | None:
    """The object that a mapping describes; None if nothing in it is a place."""
    by_role: dict[str, list[tuple[str, Json]]] = defaultdict(list)
    for key, inner in value.items():
        if inner is not None and isinstance(key, str):
            by_role[role_of(key)].append((key, inner))
    places = [_place(inner, key, order_of) for key, inner in by_role["place"]]
    coordinates = _coordinates(by_role)
    box = next((place for place in places if place and place.box), None)
    box = box or _box_of_corners(by_role) or _named(coordinates, PLACES.box_shapes)
    point = next((place for place in places if place and not place.box), None)
    if box is None and point is None:
        point = _named(coordinates, PLACES.point_shapes)
    if box is None and point is None:
        return None
    given = {role: by_role[role][0][1] for role in _BESIDE if by_role[role]}
    image = given.get("image")
    name = given.get("label")
    return replace(
        box or Region(),
        point=point.point if point else None,
        label=(str(name) if isinstance(name, (str, int)) else "") or label,
        confidence=_confidence(given.get("score")),
        broken=any(place.broken for place in (box, point) if place),
        image=image if isinstance(image, int) else None,
    )


def _coordinates(by_role: Mapping[str, list[tuple[str, Json]]]) -> dict[str, float]:
    """The single numbers that keys such as ``x1`` or ``width`` name."""
    return {
        role: number
        for role, given in by_role.items()
        if role in _COORDINATE_ROLES
        for _, inner in given
        if (number := _number(inner)) is not None
    }


def _box_of_corners(by_role: Mapping[str, list[tuple[str, Json]]]) -> Region | None:
    """A box whose two corners have keys of their own: ``top_left`` and ``bottom_right``."""
    corners: list[float] = []
    for role in ("first", "last"):
        for _, inner in by_role.get(role, [])[:1]:
            place = _place(inner, "point", as_corners)
            corners += place.point if place and place.point else ()
    return region_of_numbers(corners) if len(corners) == 4 else None


def _confidence(score: Json) -> float | None:
    number = _number(score)
    return number if number is not None and abs(number) < 1e9 else None


def _named(coordinates: Mapping[str, float], shapes: tuple[tuple[str, ...], ...]) -> Region | None:
    numbers = shaped(coordinates, shapes) if coordinates else None
    return None if numbers is None else region_of_numbers(numbers, named=True)


def _place(value: Json, key: str, order_of: OrderOf) -> Region | None:
    """The box or the point under a key that stands for a place."""
    if isinstance(value, str):
        return _place_in_text(value, key, order_of) if len(value) <= _MAX_TEXT else None
    if isinstance(value, Mapping):
        return _region_of_mapping(value, "", order_of)
    if not isinstance(value, (list, tuple)):
        return None
    if len(value) == 1 and isinstance(value[0], (list, tuple)):
        return _place(value[0], key, order_of)
    if "point" not in key and (corners := _corners(value)):
        return region_of_numbers(corners)
    numbers = _numbers(value, _LENGTHS["both"])
    return None if numbers is None else region_of_numbers(numbers, "", order_of, key)


def _place_in_text(text: str, key: str, order_of: OrderOf) -> Region | None:
    """The only box, or the only point, of a text such as ``"10, 20, 30, 40"``."""
    written = written_out(text.strip(), "both")
    boxes = [place for place in written if len(place.numbers) == 4]
    places = boxes or written
    if len(places) != 1 or ("box" in key and len(places[0].numbers) == 2):
        return None
    return region_of_numbers(places[0].numbers, "", order_of, key, places[0].named)


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value) if not isinstance(value, str) or len(value) < 24 else None
    except ValueError:
        return None
    except OverflowError:
        return math.inf
