"""Memory that grows in each ten of sixty steps is told, with what holds most of it; noise and a start are not."""

import random

import pytest

from swift_grpo_ext.watch.records import RunFacts, StepFacts
from swift_grpo_ext.watch.rules import findings


def told(resident):
    holder = "prepared images, 3.0 GiB"
    steps = [StepFacts(step, resident=value, holder=holder) for step, value in enumerate(resident, 1)]
    return [finding.what for finding in findings(steps, RunFacts(), 3) if finding.rule == "memory-grows"]


def test_steady_growth_is_told_with_its_largest_holder():
    (text,) = told([20 + 0.05 * step for step in range(80)])
    assert "grew by 2.5 GiB to 23.9 GiB over 60 steps" in text
    assert "prepared images, 3.0 GiB" in text


@pytest.mark.parametrize(
    "resident",
    [
        [20 + 0.05 * step for step in range(59)],
        [20 + min(step, 30) * 0.1 for step in range(100)],
        [20 + 0.001 * step for step in range(100)],
        [random.Random(0).uniform(10, 30) for _ in range(100)],
        [None] * 100,
    ],
    ids=["too few steps", "full caches", "by little", "noise", "unknown"],
)
def test_what_is_no_steady_growth_is_not(resident):
    assert told(resident) == []
