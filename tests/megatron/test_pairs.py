"""`megatron rlhf` in three layouts against `swift rlhf`, which trains the same tiny model."""

import os

import pytest
from pairs.cases import megatron_cases
from pairs.runs import bench_of, compare, too_far

from tests.megatron.runs import HERE, PATH

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]


@pytest.mark.parametrize("case", megatron_cases(), ids=lambda case: case.name)
def test_megatron_trains_as_transformers_do(case, python, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE / "preload"), PATH]))
    monkeypatch.setattr("sys.executable", str(python))
    assert not too_far(compare(case, bench_of("qwen2_5_vl", tmp_path, megatron=True)))
