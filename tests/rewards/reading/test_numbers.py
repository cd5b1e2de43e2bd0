import ast
import re
from pathlib import Path

import pytest

from swift_grpo_ext.rewards.reading import numbers
from swift_grpo_ext.rewards.reading.numbers import _in_place, _read

SOURCE = Path(numbers.__file__).read_text(encoding="utf-8")


def _examples():
    """Name of each pattern of the module, and the example in the comment above it."""
    lines = SOURCE.splitlines()
    for node in ast.parse(SOURCE).body:
        if not isinstance(node, ast.Assign):
            continue
        name = node.targets[0].id
        value = getattr(numbers, name)
        if isinstance(value, (str, re.Pattern)) or (isinstance(value, tuple) and value):
            comment = re.match(r'# "(.*?)"', lines[node.lineno - 2])
            yield name, value, comment[1] if comment else None


@pytest.mark.parametrize(("name", "pattern", "example"), list(_examples()))
def test_each_pattern_matches_its_example(name, pattern, example):
    assert example, f"{name} has no example above it"
    if isinstance(pattern, tuple):  # what stands before a number, and what behind it
        assert _in_place(*_read(example), pattern)
    else:
        assert re.search(pattern, example)
