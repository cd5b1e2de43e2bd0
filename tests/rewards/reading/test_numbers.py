import re
from importlib import import_module
from pkgutil import iter_modules

import pytest

from swift_grpo_ext.rewards import reading
from swift_grpo_ext.rewards.reading import numbers
from swift_grpo_ext.rewards.reading.numbers import _in_place, _read
from tests.rewards.pattern_examples import examples

MODULES = [import_module(f"{reading.__name__}.{module.name}") for module in iter_modules(reading.__path__)]


@pytest.mark.parametrize(
    ("name", "pattern", "example"),
    [case for module in MODULES for case in examples(module)],
)
def test_each_pattern_matches_its_example(name, pattern, example):
    assert example, f"{name} has no example above it"
    if isinstance(pattern, tuple):  # what stands before a number, and what behind it
        assert _in_place(*_read(example), pattern)
    else:
        assert pattern.search(example)


def test_parts_of_a_pattern_match_their_example():
    """Texts that the pattern of a number is built of."""
    parts = {
        "_COMMAS": "12,34,567.8",
        "_POINTS_THEN_COMMA": "1.234,5",
        "_POINTS": "1.234.567",
        "_PLAIN": "0,5",
    }
    parts |= {"_POWER": "x 10^-3", "_SIGN": "-$", "_DIVISOR": "/ 4", "_PERCENT": "percent", "_WORD": "° C"}
    parts |= {"_UNIT_POWER": "^{2}", "_PER": " per hour"}
    assert not [name for name, text in parts.items() if not re.fullmatch(getattr(numbers, name), text)]
