"""Memory that grows in each ten of sixty steps is told, once; noise and a start are not."""

import random

import pytest

from swift_grpo_ext.watch.memory import MemoryGrowth


def told(resident):
    growth = MemoryGrowth()
    return [cause.text for cause in map(growth.add, resident) if cause]


def test_steady_growth_is_told_once():
    (text,) = told([20 + 0.05 * step for step in range(80)])
    assert "grew by 2.5 GiB to 22.9 GiB over 60 steps" in text


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
