import json

import pytest
from pydantic import ValidationError

from swift_grpo_ext.rewards.reading import schema
from swift_grpo_ext.rewards.reading.numbers import _in_place, _read
from swift_grpo_ext.rewards.reading.words import COUNTS, NUMBERS, AbsencePhrases

TABLES = {"numbers": NUMBERS, "counts": COUNTS}


def places():
    """Name, patterns and example of every place of a number in the tables."""
    for table, loaded in TABLES.items():
        written = json.loads((schema.FOLDER / f"{table}.json").read_text(encoding="utf-8"))
        for name, value in written.items():
            for number, place in enumerate(value if isinstance(value, list) else [value]):
                if "left" in place or "right" in place:
                    read = getattr(loaded, name)
                    yield (
                        f"{table}.{name}",
                        read[number] if isinstance(value, list) else read,
                        place["example"],
                    )


@pytest.mark.parametrize(("name", "place", "example"), places())
def test_the_number_of_each_example_stands_in_its_place(name, place, example):
    assert _in_place(*_read(example), place)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"example": "a dog"}, "not found in its example 'a dog'"),
        ({"example": ""}, "at least 1 character"),
        ({"any_of": []}, "at least 1 item"),
        ({"anyof": ["no"]}, "Extra inputs"),
    ],
)
def test_a_phrase_that_its_example_does_not_show_is_refused(changed, said):
    table = json.loads((schema.FOLDER / "absences.json").read_text(encoding="utf-8"))
    table["negated"] |= changed
    with pytest.raises(ValidationError, match=said):
        AbsencePhrases.model_validate(table, context="absences")
