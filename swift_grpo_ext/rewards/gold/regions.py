"""The gold boxes and points of a row: where they stand, in which frame and order, and what is refused."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, TypeAlias

from swift_grpo_ext.rewards.contract import Columns, NoGold, Outcome, Unread, Unscorable, as_gold, gold_value
from swift_grpo_ext.rewards.gold.frames import SIZES_COLUMN, Frame, convert, extent
from swift_grpo_ext.rewards.gold.geometry import area, matched_mean
from swift_grpo_ext.rewards.json_text import Json, decoded, literal, strict
from swift_grpo_ext.rewards.place import answer_of, unwrapped
from swift_grpo_ext.rewards.values.region import Order, Place, Region
from swift_grpo_ext.rewards.values.regions import Kind, read, says_nothing

EmptyGold: TypeAlias = Literal["unscored", "nothing"]
# Keys and columns of a COCO annotation, whose ``bbox`` is x, y, width, height.
COCO_COLUMNS = ("iscrowd", "category_id", "bbox_id", "segmentation", "area")
GOLD = ("solution", "bbox", "boxes", "objects", "answer")
READS = (SIZES_COLUMN, *COCO_COLUMNS)  # other columns that rewards of places read
OUTSIDE = 0.02  # share of the image by which a gold box may reach beyond it: annotators do


@dataclass(frozen=True)
class Places:
    """How places are written: parameters of every reward that compares them.

    Attributes:
        frame: Coordinate frame that the model answers in; in a run, by default that of the model's family.
        gold_frame: Coordinate frame of the gold column; the same as `frame` if not given.
        order: Order of four numbers that nothing names in answers: corners with x first, or with y first
            (Gemini), which then holds for a gold under the key ``box_2d``, too.
        gold_order: Order of the gold's: ``xywh`` is COCO's; corners with x first if not given.
        image_index: Which of the row's images the places lie in, from 0, where the gold does not say.
    """

    frame: Frame = "pixel_resized"
    gold_frame: Frame | None = None
    order: Literal["xyxy", "yxyx"] = "xyxy"
    gold_order: Order | None = None
    image_index: int = 0

    def in_answers(self, key: str) -> Order:
        """The order of an answer's numbers under a key."""
        return self.order

    def in_gold(self, key: str) -> Order:
        """The order of the gold's numbers under a key."""
        return self.gold_order or (self.order if key == "box_2d" else "xyxy")


@dataclass(frozen=True)
class Objects(Places):
    """How objects are written, of which there may be none.

    Attributes:
        empty_gold: What an empty gold means; with ``nothing``, the right answer says that nothing is there.
    """

    empty_gold: EmptyGold = "unscored"


PLACES = Places()
OBJECTS = Objects()


def gold_places(columns: Columns, places: Places) -> list[Region]:
    """The row's gold objects, each with a box, in the frame of the answers; empty if there is nothing."""
    regions, source = gold_regions(columns, GOLD, "box", places)
    return converted(regions, source, places.frame, columns, places)


def gold_boxes(columns: Columns, places: Places) -> list[Place]:
    """The boxes of `gold_places`."""
    return [region.place for region in gold_places(columns, places)]


def matched(
    completion: str,
    columns: Columns,
    kind: Kind,
    places: Places,
    gain: Callable[[Any, Any], float],
    worst: float = 0.0,
) -> Outcome:
    """Mean gain of the answer's boxes, or boxes and points, with the gold's; of no gold, 1 for "nothing".

    Raises:
        Unread: It holds no place, or several where one is expected.
    """
    gold = gold_boxes(columns, places)
    answer = answer_of(completion, "located")
    if not gold:
        return Outcome.of(1.0 if says_nothing(answer) else worst, answer, "nothing")
    regions = read(answer, kind, places.in_answers)
    if len(gold) == 1 and len(regions) > 1:
        raise Unread(f"{len(regions)} places for one target: {answer[:80]!r}")
    predicted = [region.place for region in regions if region.is_box or kind == "both"]
    score = matched_mean(predicted, gold, gain, unmatched=worst) if predicted else worst
    return Outcome.of(score, shown(predicted), shown(gold))


def shown(places: Iterable[object]) -> str:
    """Places in few words."""
    return ", ".join(str(place) for place in islice(places, 8))


def converted(
    regions: list[Region], source: Frame, target: Frame, columns: Columns, places: Places
) -> list[Region]:
    """Gold objects in another frame.

    Raises:
        Unscorable: No answer could meet one, or the image's size shows that it cannot be in this frame.
    """
    there = []
    for region in regions:
        image = places.image_index if region.image is None else region.image
        there.append(moved(region, source, target, columns, image))
        _check(region, source, columns, image)
    return there


def moved(region: Region, source: Frame, target: Frame, columns: Columns, image: int) -> Region:
    """The region in another frame."""
    return replace(region, place=convert(region.place, source, target, columns, image))


def gold_regions(
    columns: Columns, names: tuple[str, ...], kind: Kind, places: Places
) -> tuple[list[Region], Frame]:
    """The row's gold objects and their frame, which ms-swift's own column ``objects`` states.

    Raises:
        Unscorable: The row has no gold object or too many, a point where a box is needed, or a COCO
            annotation whose order is not declared.
    """
    may_be_empty = getattr(places, "empty_gold", "") == "nothing"
    try:
        gold = gold_value(columns, names)
    except NoGold as fault:
        if may_be_empty:
            return [], places.frame
        raise Unscorable(f"{fault}; if it means that nothing is there: empty_gold=nothing") from None
    if isinstance(gold, str):
        text = unwrapped(gold)
        gold = decoded(text, strict, literal, otherwise=text)
    if may_be_empty and says_nothing(gold):
        return [], places.frame
    _refuse_undeclared_coco(gold, columns, places)
    regions = as_gold(read, gold, kind, places.in_gold)
    if kind == "box" and not all(region.is_box for region in regions):
        raise Unscorable(f"gold {gold!r:.80} holds a point, not a box")
    if not (isinstance(gold, Mapping) and _is_ms_swifts(gold)):
        return regions, places.gold_frame or places.frame
    # A box may name its image.
    images = [*(gold.get("image_id") or []), *[places.image_index] * len(regions)]
    there = [replace(region, image=image) for region, image in zip(regions, images, strict=False)]
    return there, "norm1" if gold.get("bbox_type") == "norm1" else "pixel_original"


def _check(region: Region, frame: Frame, columns: Columns, image: int) -> None:
    """Refuse a gold place that no answer could meet.

    Its corners are out of order, it has no area, or, where the image's size is known, lies outside of the
    image or is in fractions for pixels.

    Raises:
        Unscorable: It is such a place.
    """
    numbers = list(region.place)
    if region.reordered:
        raise Unscorable("gold box with its corners out of order: x, y, width, height? then gold_order=xywh")
    if region.is_box and area(region.place) <= 0:
        raise Unscorable(f"gold box {numbers} has no area")
    try:
        size = extent(frame, columns, image)
    except Unscorable:
        return
    pixel = float(size[0] > 1)  # annotators count pixels from 0 or from 1
    overhang = [max(-number, number - size[axis % 2]) for axis, number in enumerate(numbers)]
    if any(beyond > OUTSIDE * size[axis % 2] + pixel for axis, beyond in enumerate(overhang)):
        what = f"gold {numbers} lies outside of the image ({size[0]:g} x {size[1]:g} in {frame})"
        raise Unscorable(f"{what}: another gold_frame or gold_order, or an EXIF orientation?")
    if frame.startswith("pixel") and max(map(abs, numbers)) <= 1 and any(number % 1 for number in numbers):
        raise Unscorable(f"gold {numbers} is smaller than a pixel: gold_frame=norm1?")


def _is_ms_swifts(gold: Mapping[str, Json]) -> bool:
    """True for ms-swift's column ``objects``: lists of lists, without COCO's keys."""
    boxes = gold.get("bbox")
    rows = isinstance(boxes, (list, tuple)) and all(isinstance(box, (list, tuple)) for box in boxes)
    return rows and ("ref" in gold or "bbox_type" in gold or set(gold) <= {"bbox", "image_id"})


def _refuse_undeclared_coco(gold: Json, columns: Columns, places: Places) -> None:
    if places.gold_order is not None:
        return
    first = gold[0] if isinstance(gold, (list, tuple)) and gold else gold
    beside = first if isinstance(first, Mapping) else columns if "solution" not in columns else {}
    marks = [name for name in COCO_COLUMNS if beside.get(name) is not None]
    if marks and "bbox" in beside:
        what = f"gold beside {marks[0]} is a COCO annotation"
        raise Unscorable(f"{what}: gold_order=xywh, or xyxy if it holds corners")
