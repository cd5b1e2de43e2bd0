"""Reading boxes and points out of a text: JSON, also one with a fault, or what `text_coordinates` reads."""

import re
from dataclasses import replace
from typing import Any

from swift_grpo_ext.rewards.reading.answer import last_fenced
from swift_grpo_ext.rewards.reading.assertion import is_unsure, stated, without_questions
from swift_grpo_ext.rewards.reading.coordinates import Kind, written_out
from swift_grpo_ext.rewards.reading.json_boxes import regions_in
from swift_grpo_ext.rewards.reading.json_text import json_values, values_in
from swift_grpo_ext.rewards.reading.region import OrderOf, Region, as_corners, region_of_numbers
from swift_grpo_ext.rewards.reading.words import ABSENCES

MAX_REGIONS = 300  # an answer with more objects counts as none

# "<ref>a dog</ref>"
_REF = re.compile(
    r"<(?:ref|p|phrase|\|object_ref_start\||\|ref\|)>([^<>]{1,256})<(?:/|\|object_ref_end\|>|\|/ref\|>)"
)
MAX_STATEMENT = 400  # characters of an answer that states an absence; a longer one is not read for it


def stated_regions(text: str, kind: Kind, order_of: OrderOf = as_corners) -> list[Region]:
    """The objects of `parse_regions`, without places that the text denies: "not at [10, 20, 30, 40]"."""

    def read(part: str) -> list[Region] | None:
        return (
            None
            if ABSENCES.either.search(part)
            else parse_regions(ABSENCES.denied_place.sub(" ", part), kind, order_of) or None
        )

    regions = (read(text) if '"' in text else stated(text, read)) or []
    return [region for region in regions if not ABSENCES.not_it.match(region.label)]


def parse_regions(text: str, kind: Kind, order_of: OrderOf = as_corners) -> list[Region]:
    """The objects of a text, none if more than `MAX_REGIONS`; `kind` is what a list without keys means."""
    parts = ["", *_REF.split(last_fenced(text).strip())]  # a name before each part
    regions: list[Region] = []
    for label, part in zip(map(str.strip, parts[::2]), parts[1::2], strict=True):
        read = _read(part, kind, order_of)
        regions += [replace(region, label=label) for region in read] if label else read
    return regions if len(regions) <= MAX_REGIONS else []


def _read(text: str, kind: Kind, order_of: OrderOf) -> list[Region]:
    text = text.strip()
    values: list[Any] = values_in(text)
    # Bare lists in prose are read with the words around them, which name them.
    inner = [item for value in values for item in (value if isinstance(value, list) else [value])]
    keyed = any(isinstance(item, dict) for item in inner)
    whole = text[:1] in "[{" and text[-1:] in "]}" and len(json_values(text) or ()) == 1
    regions = regions_in(values[0] if len(values) == 1 else values, kind, order_of) if keyed or whole else []
    if regions:
        return regions
    written = written_out(text, kind)
    if not written and values:
        return regions_in(values, kind, order_of)
    return [region_of_numbers(place.numbers, place.label, order_of, named=place.named) for place in written]


def says_nothing(answer: str | None) -> bool:
    """Whether an answer says in words, or with an empty list, that nothing is there, and names no place.

    A refusal and a question say nothing of the kind.
    """
    if not answer or len(answer) > MAX_STATEMENT or is_unsure(answer) or ABSENCES.something.search(answer):
        return False
    answer = without_questions(answer)
    bare = last_fenced(answer).strip().strip("*_`\"'")
    named = (
        ABSENCES.empty.fullmatch(bare) or ABSENCES.negated.search(bare) or ABSENCES.empty_field.search(bare)
    )
    return named is not None and not parse_regions(answer, "both")
