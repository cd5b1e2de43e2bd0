"""Models that the planner's tests plan for."""

import pytest

from swift_grpo_ext.doctor.plan.catalogue import require_config
from swift_grpo_ext.doctor.plan.shape import shape_of


@pytest.fixture(scope="session")
def big():
    return shape_of(require_config("Qwen/Qwen2.5-VL-72B-Instruct"))


@pytest.fixture(scope="session")
def seven():
    return shape_of(require_config("Qwen2.5-VL-7B"))
