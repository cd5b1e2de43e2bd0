from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.table import Cell, parse_table, size, table, table_similarity

HTML = "<table><thead><tr><th colspan='2'>Sales <b>2020</b></th></tr></thead><tbody><tr><td>Q1</td><td>1&amp;2</td></tr></tbody></table>"
MARKDOWN = "| a | b |\n|:--|--:|\n| 1 | 2 |\n"
cells = st.lists(st.lists(st.sampled_from(["a", "b", "ab", ""]).map(Cell), max_size=3), max_size=3)


def as_tree(found):
    return ("table", tuple(("tr", tuple((cell, ()) for cell in row)) for row in found))


@cache
def forest_distance(one, other):
    """Tree edit distance by the textbook recurrence over forests (exponential without the cache)."""
    if not one and not other:
        return 0.0
    best = float("inf")
    if one:
        _, inner = one[-1]
        best = min(best, 1 + forest_distance(one[:-1] + inner, other))
    if other:
        _, inner = other[-1]
        best = min(best, 1 + forest_distance(one, other[:-1] + inner))
    if one and other:
        (a, inner_a), (b, inner_b) = one[-1], other[-1]
        best = min(
            best, forest_distance(one[:-1], other[:-1]) + forest_distance(inner_a, inner_b) + rename(a, b)
        )
    return best


def rename(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return float(a != b)
    return 0.0 if a == b else 0.5 if {a.text, b.text} in ({"a", "ab"}, {"b", "ab"}) else 1.0


@given(cells, cells)
def test_similarity_against_the_unrestricted_tree_edit_distance(one, other):
    exact = 1 - forest_distance((as_tree(one),), (as_tree(other),)) / max(size(one), size(other))
    ours = table_similarity(one, other)
    assert ours <= exact + 1e-9
    if len(one) == len(other) <= 1:  # one row each: no row can be split or joined
        assert ours == pytest.approx(max(0.0, exact))


@given(cells, cells)
def test_similarity_is_symmetric_and_one_only_for_equal_tables(one, other):
    assert table_similarity(one, other) == pytest.approx(table_similarity(other, one))
    assert (table_similarity(one, other) == pytest.approx(1.0)) == (one == other)


def test_html_and_markdown():
    assert parse_table(HTML) == [[Cell("Sales 2020", columns=2)], [Cell("Q1"), Cell("1&2")]]
    assert parse_table(MARKDOWN) == [[Cell("a"), Cell("b")], [Cell("1"), Cell("2")]]
    assert parse_table("<TABLE><TR><TD>x</TD></TR></TABLE>") == [[Cell("x")]]
    assert parse_table("<tr><td>unclosed<td>cells") == [[Cell("unclosed"), Cell("cells")]]
    assert parse_table("no table") == []


def test_either_form_may_answer_the_other():
    html = "<table><tr><td>a</td><td>b</td></tr><tr><td>1</td><td>2</td></tr></table>"
    assert table(f"<answer>{html}</answer>", {"solution": MARKDOWN}) == 1.0
    assert table(f"<answer>```markdown\n{MARKDOWN}```</answer>", {"solution": html}) == 1.0


def test_edits_cost_what_the_formula_says():
    gold = {"solution": MARKDOWN}  # 1 + 2 + 4 nodes
    assert table("<answer>|a|b|\n|-|-|\n|1|3|</answer>", gold) == pytest.approx(6 / 7)
    assert table("<answer>|a|b|\n|-|-|\n|1|2|\n|5|6|</answer>", gold) == pytest.approx(7 / 10)
    assert table("<answer>|a|b|</answer>", gold) == pytest.approx(4 / 7)


def test_surplus_cells_lower_the_score():
    rows = ["| 9 | 9 |\n" * n for n in range(5)]
    scores = [table(f"<answer>{MARKDOWN}{surplus}</answer>", {"solution": MARKDOWN}) for surplus in rows]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == 1.0 > scores[1]


def test_a_flood_of_cells_scores_nothing():
    assert table(f"<answer>{'|1|2|' + chr(10)}{'|1|2|' * 2000}</answer>", {"solution": MARKDOWN}) == 0.0
    assert (
        table.outcome("", {"solution": "|a|\n" * 500}).reason == "gold holds 500 table cells, need 1 to 400"
    )
