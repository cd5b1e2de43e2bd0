"""Reading boxes and points out of model answers and gold columns.

Answers may be JSON (``[{"bbox_2d": [x1, y1, x2, y2], "label": "cat"}]``, in a fence or bare, with single
quotes too; of JSON with a fault, each object that can be read), bare lists (``[x1, y1, x2, y2]``,
``[[x, y], [x, y]]``), or what `prose` reads. ``<ref>cat</ref>`` and ``<|object_ref_start|>`` name what comes
after them. Corners may come in any order.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from swift_grpo_ext.rewards.answer import last_fenced
from swift_grpo_ext.rewards.contract import Columns, Unscorable
from swift_grpo_ext.rewards.frames import Frame
from swift_grpo_ext.rewards.geometry import Box, Point, area
from swift_grpo_ext.rewards.gold import gold_value
from swift_grpo_ext.rewards.text_coordinates import Kind, written_out

MAX_REGIONS = 300
"""An answer with more objects counts as none."""
MAX_COORDINATE = 1e7

_BOX_KEYS = ("bbox_2d", "bbox", "box", "box_2d")
_POINT_KEYS = ("point_2d", "point", "coordinate", "coordinates", "center", "click_point")
_LABEL_KEYS = ("label", "category", "class", "name", "ref")
_CONFIDENCE_KEYS = ("score", "confidence", "conf")
_CONTAINERS = {
    "objects",
    "boxes",
    "bboxes",
    "bounding_boxes",
    "points",
    "detections",
    "annotations",
    "results",
}
_UNNAMED = {*_BOX_KEYS, *_POINT_KEYS, *_CONTAINERS}
"""Keys that are no label of what they hold."""
_MAX_DEPTH = 6
_REF = re.compile(r"<ref>([^<>]{1,256})</ref>|<\|object_ref_start\|>([^<>]{1,256})<\|object_ref_end\|>")
_FLAT = re.compile(r"\{[^{}:]{1,256}:[^{}]{0,1024}\}")
_OPENING = re.compile(r"[\[{]")


@dataclass(frozen=True)
class Region:
    """One object of an answer. Coordinates that are no finite numbers become a box or point at the origin.

    Attributes:
        box: (left, top, right, bottom) with ordered corners, or None.
        point: (x, y), or None.
        label: As written, "" if none.
        confidence: As written if it is a number, else None.
        broken: Whether a coordinate was no finite number.
    """

    box: Box | None = None
    point: Point | None = None
    label: str = ""
    confidence: float | None = None
    broken: bool = field(default=False, compare=False)


def json_values(text: str) -> list[Any] | None:
    """All JSON lists and objects in a text, in order; None if a bracket opens something that is not JSON.

    Stops at the first fault, so the text is read once. Single quotes are taken for double ones if the text
    has no double ones.
    """
    if "'" in text and '"' not in text:
        text = text.replace("'", '"')
    values = []
    opening = _OPENING.search(text)
    while opening:
        try:
            value, end = _DECODER.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            return None
        values.append(value)
        opening = _OPENING.search(text, end)
    return values


_DECODER = json.JSONDecoder()


def values_in(text: str) -> list[Any]:
    """Like `json_values`; of a text with a fault, each innermost object that can be read."""
    values = json_values(text)
    return (
        values if values is not None else [value for flat in _FLAT.findall(text) for value in _literal(flat)]
    )


def _literal(text: str) -> list[Any]:
    """A short text as JSON, else as a literal of Python; empty if it is neither."""
    for decode in (json.loads, ast.literal_eval):
        try:
            return [decode(text)]
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
    return []


def parse_regions(text: str, kind: Kind) -> list[Region]:
    """The objects of an answer; empty if there are none, or more than `MAX_REGIONS`.

    Args:
        text: The answer.
        kind: What a list without keys means.
    """
    body = last_fenced(text).strip()
    found: list[Region] = []
    refs = [None, *_REF.finditer(body)]
    for ref, following in zip_longest(refs, refs[1:]):
        part = body[ref.end() if ref else 0 : following.start() if following else len(body)]
        label = (ref[1] or ref[2]).strip() if ref else ""
        found += [region if region.label else replace(region, label=label) for region in _read(part, kind)]
    return found if len(found) <= MAX_REGIONS else []


def _read(text: str, kind: Kind) -> list[Region]:
    values = values_in(text)
    found = regions_in(values[0] if len(values) == 1 else values, kind)
    return found or [_region_of_numbers(numbers) for numbers in written_out(text.strip(), kind)]


def regions_in(value: Any, kind: Kind) -> list[Region]:
    """The objects in a decoded JSON value."""
    return list(_walk(value, kind, "", 0))


def _walk(value: Any, kind: Kind, label: str, depth: int) -> Iterator[Region]:
    """Regions in a decoded JSON value, depth first."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, (dict, Mapping)):  # dict first: asking an abstract class costs more
        region = _region_of_mapping(value, label)
        if region is not None:
            yield region
            return
        own = _first(value, _LABEL_KEYS)
        around = own if isinstance(own, str) else label
        for key, inner in value.items():
            yield from _walk(inner, kind, around if key in _UNNAMED else str(key), depth + 1)
    elif isinstance(value, (list, tuple)):
        numbers = _corner_numbers(value, kind)
        if numbers is not None:
            yield _region_of_numbers(numbers, label)
            return
        for inner in value:
            yield from _walk(inner, kind, label, depth + 1)


def _corner_numbers(value: Any, kind: Kind) -> list[Any] | None:
    """The numbers of a list that is itself a box or a point."""
    if len(value) == 2 and kind == "box" and all(_is_numbers(pair, 2) for pair in value):
        return [*value[0], *value[1]]
    lengths = {"box": (4,), "point": (2,), "both": (2, 4)}[kind]
    return list(value) if len(value) in lengths and _is_numbers(value, len(value)) else None


def _is_numbers(value: Any, length: int) -> bool:
    if not isinstance(value, (list, tuple)) or len(value) != length:
        return False
    for number in value:  # noqa: SIM110  a loop, for this runs for every box
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            return False
    return True


def _region_of_mapping(value: Mapping[str, Any], label: str) -> Region | None:
    box = _first(value, _BOX_KEYS)
    point = _first(value, _POINT_KEYS)
    if point is None and "x" in value and "y" in value:
        point = [value["x"], value["y"]]
    if isinstance(box, (list, tuple)) and len(box) == 2 and all(_is_numbers(pair, 2) for pair in box):
        box = [*box[0], *box[1]]
    has_box, has_point = _is_numbers(box, 4), _is_numbers(point, 2)
    if not has_box and not has_point:
        return None
    own_label = _first(value, _LABEL_KEYS)
    confidence = _first(value, _CONFIDENCE_KEYS)
    return Region(
        box=_ordered(box) if has_box else None,
        point=_finite(point) if has_point else None,  # type: ignore[arg-type]
        label=own_label if isinstance(own_label, str) else label,
        confidence=float(confidence) if _is_numbers([confidence], 1) and abs(confidence) < 1e9 else None,
        broken=not (_all_finite(box if has_box else ()) and _all_finite(point if has_point else ())),
    )


def _first(value: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        if value.get(key) is not None:
            return value[key]
    return None


def _region_of_numbers(numbers: list[Any], label: str = "") -> Region:
    broken = not _all_finite(numbers)
    if len(numbers) == 4:
        return Region(box=_ordered(numbers), label=label, broken=broken)
    return Region(point=_finite(numbers), label=label, broken=broken)  # type: ignore[arg-type]


def _finite(numbers: Any) -> tuple[float, ...]:
    """The numbers as floats; all zero if one of them is not finite or absurdly large."""
    return tuple(map(float, numbers)) if _all_finite(numbers) else (0.0,) * len(numbers)


def _all_finite(numbers: Any) -> bool:
    for number in numbers:  # noqa: SIM110  a loop, for this runs for every box
        if not -MAX_COORDINATE <= number <= MAX_COORDINATE:
            return False
    return True


def _ordered(numbers: Any) -> Box:
    x1, y1, x2, y2 = _finite(numbers)
    return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)


def gold_regions(
    columns: Columns, names: tuple[str, ...], kind: Kind, frame: Frame
) -> tuple[list[Region], Frame]:
    """The gold objects of a row and the frame that they are in.

    Args:
        columns: The row.
        names: Columns that may hold the gold. ``objects`` is ms-swift's own grounding column
            (``{"ref": [...], "bbox": [...], "bbox_type": "real" or "norm1"}``) and knows its frame.
        kind: What a list without keys means.
        frame: Frame of the gold in every other column.

    Raises:
        Unscorable: No gold, a gold without any object, or a gold box without area.
    """
    gold = gold_value(columns, names)
    if isinstance(gold, str) and gold == str(columns.get("objects")).strip():
        gold = (json_values(gold) or [gold])[0]
    if isinstance(gold, Mapping) and "bbox" in gold and _is_list_of_lists(gold["bbox"]):
        frame = "norm1" if gold.get("bbox_type") == "norm1" else "pixel_original"
        ref = gold.get("ref")
        labels = ref if isinstance(ref, (list, tuple)) else []
        known = labels if len(labels) == len(gold["bbox"]) else [""] * len(gold["bbox"])
        gold = [{"bbox": box, "label": label} for box, label in zip(gold["bbox"], known, strict=True)]
    regions = parse_regions(gold, kind) if isinstance(gold, str) else regions_in(gold, kind)
    if not regions or len(regions) > MAX_REGIONS:
        raise Unscorable(f"gold {gold!r:.80} holds {len(regions)} objects, need 1 to {MAX_REGIONS}")
    for region in regions:
        check_gold_region(region)
    return regions, frame


def check_gold_region(region: Region) -> None:
    """Refuse a gold place that no answer could meet.

    Raises:
        Unscorable: A coordinate that is no finite number, or a box without area.
    """
    if region.broken:
        raise Unscorable("gold with a coordinate that is no finite number")
    if region.box is not None and area(region.box) <= 0:
        raise Unscorable(f"gold box {list(region.box)} has no area")


def _is_list_of_lists(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, (list, tuple)) for item in value)
