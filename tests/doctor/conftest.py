"""Models that the planner's tests plan for, and the folder in which launch scripts are read."""

import os

import pytest

from swift_grpo_ext.doctor.check import inputs
from swift_grpo_ext.doctor.plan.catalogue import require_config
from swift_grpo_ext.doctor.plan.shape import shape_of
from tests.forked import forked_workers


@pytest.fixture(autouse=True, scope="session")
def _children_that_start_in_a_moment():
    with forked_workers():
        yield


@pytest.fixture(scope="session")
def big():
    return shape_of(require_config("Qwen/Qwen2.5-VL-72B-Instruct"))


@pytest.fixture(scope="session")
def seven():
    return shape_of(require_config("Qwen2.5-VL-7B"))


@pytest.fixture
def launch_folder(tmp_path, monkeypatch):
    """An empty current folder of a machine without a GPU, a cluster or settings of ours."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("SLURM", "SWIFT_GRPO_EXT"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(inputs, "first_gpu", lambda: (0, ""))
