"""hpZ with a second model: DeepSpeed's own function, over a process group that is only named."""

from types import SimpleNamespace

import pytest

from swift_grpo_ext.compat import hpz_group


@pytest.fixture
def groups(monkeypatch):
    """DeepSpeed's groups as the first of two ranks sees them; none is made yet."""
    from deepspeed.utils import groups

    names = SimpleNamespace(
        is_initialized=lambda: True,
        get_world_size=lambda: 4,
        get_rank=lambda: 0,
        new_group=lambda ranks: list(ranks),
    )
    monkeypatch.setattr(groups, "dist", names)
    monkeypatch.setattr(groups, "_ZERO_PARAM_INTRA_PARALLEL_GROUP", None)
    return groups


def test_stock_deepspeed_makes_one_model_only(prove, groups):
    prove(hpz_group.fix)  # another test of this process may have left it on
    assert hpz_group.fix.probe()
    groups._create_zero_param_parallel_group(2)
    with pytest.raises(AssertionError, match="is already initialized"):
        groups._create_zero_param_parallel_group(2)


def test_the_group_of_the_first_model_serves_the_second(prove, groups):
    proof = prove(hpz_group.fix)
    proof.on()
    groups._create_zero_param_parallel_group(2)
    first = groups._get_zero_param_intra_parallel_group()
    groups._create_zero_param_parallel_group(2)
    assert groups._get_zero_param_intra_parallel_group() is first
    assert first == [0, 1]
    with pytest.raises(AssertionError, match="is already initialized"):
        groups._create_zero_param_parallel_group(4)
    proof.off()
    proof.drift()
