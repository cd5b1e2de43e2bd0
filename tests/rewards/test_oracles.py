"""Rewards against other people's implementations, on generated cases."""

import math as arithmetic
import random

import pytest
import shapely
from hypothesis import assume, given
from hypothesis import strategies as st
from math_verify import parse, verify
from rapidfuzz.distance import Levenshtein

from swift_grpo_ext.rewards.grounding import point_in_box
from swift_grpo_ext.rewards.math_equality import math
from swift_grpo_ext.rewards.ocr import anls, ocr
from swift_grpo_ext.rewards.temporal import temporal_iou
from tests.rewards.expressions import expressions


@given(expressions(), expressions())
def test_math_is_math_verifys(gold, other):
    for answer in (gold, other):
        expected = verify(parse(f"${gold}$"), parse(rf"\boxed{{{answer}}}"))
        assert math(rf"\boxed{{{answer}}}", {"solution": f"${gold}$"}) == float(expected)


letters = st.text(alphabet="abcdé字 ", max_size=40)


@given(letters, letters)
def test_character_accuracy_is_rapidfuzz(read, gold):
    read, gold = " ".join(read.split()), " ".join(gold.split())
    assume(gold)
    expected = Levenshtein.normalized_similarity(read, gold) if read else 0.0
    assert ocr(f"<answer>{read}</answer>", {"solution": gold}) == pytest.approx(expected)
    cut = expected if expected > 0.5 else 0.0
    assert anls(f"<answer>{read}</answer>", {"solution": gold}) == pytest.approx(cut)


@given(st.integers(0, 10**9))
def test_points_are_shapelys(seed):
    rng = random.Random(seed)
    left, top = rng.uniform(0, 500), rng.uniform(0, 500)
    box = [round(value, 2) for value in (left, top, left + rng.uniform(1, 200), top + rng.uniform(1, 200))]
    point = [round(rng.uniform(-50, 750), 2), round(rng.uniform(-50, 750), 2)]
    inside = shapely.box(*box).contains(shapely.Point(point))
    assert point_in_box(f"<answer>{point}</answer>", {"solution": box}) == float(inside)


spans = st.lists(st.tuples(st.integers(0, 99), st.integers(1, 50)), min_size=1, max_size=4)


@given(spans, spans)
def test_spans_are_shapelys(ours, theirs):
    def lines(found):
        return shapely.union_all([shapely.box(start, 0, start + length, 1) for start, length in found])

    def listed(found):
        return [[start, start + length] for start, length in found]

    one, other = lines(ours), lines(theirs)
    expected = one.intersection(other).area / one.union(other).area
    score = temporal_iou(f"<answer>{listed(ours)}</answer>", {"solution": listed(theirs)})
    assert arithmetic.isclose(score, expected, abs_tol=1e-9)
