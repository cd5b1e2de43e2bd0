"""The planner's ranges against figures that others published, and the page that shows them."""

import re
from pathlib import Path

import pytest

from benchmarks.memory_points import points, summary, table

PAGE = Path(__file__).parents[2] / "docs" / "memory.md"


@pytest.fixture(scope="module")
def found():
    return points()


def test_no_published_figure_is_outside_without_a_reason(found):
    assert len(found) >= 15
    assert [point.what for point in found if not point.inside and not point.reason] == []
    assert sum(point.inside for point in found) >= 0.85 * len(found)


def test_a_reason_stands_only_where_it_is_needed(found):
    assert [point.what for point in found if point.inside and point.reason] == []


def test_the_ranges_are_narrow_enough_to_plan_by(found):
    """Half of them span less than 1.7 times the least, and runs of GRPO at most 2.6 times."""
    widths = sorted(point.high / point.low for point in found)
    assert widths[len(widths) // 2] < 1.7
    assert max(point.high / point.low for point in found if point.what.startswith("GRPO")) < 2.6


def test_the_page_shows_what_the_command_prints(found):
    page = PAGE.read_text(encoding="utf-8")
    assert table(found) in page
    assert summary(found) in page


def test_every_point_names_its_source(found):
    assert all(
        re.match(r"https://github\.com/[\w.-]+/[\w.-]+/(blob|issues)/", point.source) for point in found
    )
