"""ZeRO-3 with hpZ: the group of the secondary partition serves a second model."""

from types import SimpleNamespace

import pytest


@pytest.fixture
def groups(monkeypatch):
    """DeepSpeed's groups as the first of four ranks sees them; none is made yet."""
    from deepspeed.utils import groups

    names = SimpleNamespace(
        is_initialized=lambda: True,
        get_world_size=lambda group=None: 4 if group is None else len(group),
        get_rank=lambda: 0,
        new_group=lambda ranks: list(ranks),
    )
    monkeypatch.setattr(groups, "dist", names)
    monkeypatch.setattr(groups, "_ZERO_PARAM_INTRA_PARALLEL_GROUP", None)
    return groups


def test_a_second_model_shares_the_group(groups):
    groups._create_zero_param_parallel_group(2)
    first = groups._get_zero_param_intra_parallel_group()
    groups._create_zero_param_parallel_group(2)
    assert groups._get_zero_param_intra_parallel_group() is first


def test_another_size_is_refused(groups):
    groups._create_zero_param_parallel_group(2)
    with pytest.raises(AssertionError, match="is already initialized"):
        groups._create_zero_param_parallel_group(4)
