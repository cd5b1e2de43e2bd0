"""The table of losses says of each what ms-swift's code does."""

import inspect

import pytest
from swift.rlhf_trainers import grpo_trainer

from swift_grpo_ext.losses import LOSSES, loss_named, why_sizes_matter
from tests.pairs.cases import LIGER_ONLY


def test_a_loss_over_the_window_is_one_of_ms_swifts_list():
    names = {loss.name for loss in LOSSES.values() if loss.over_window}
    assert names == set(getattr(grpo_trainer, "WINDOW_NORMALIZED_LOSS_TYPES", names))


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - LIGER_ONLY))
def test_ms_swift_computes_each(name):
    source = inspect.getsource(grpo_trainer)
    assert f"'{name}'" in source or name in getattr(grpo_trainer, "WINDOW_NORMALIZED_LOSS_TYPES", ())


def test_a_loss_without_a_row_is_ms_swifts_own_way():
    """Nothing is left out, and micro-batches stay; nor is it refused or changed as those with a row are."""
    unknown = loss_named("of next year")
    assert unknown.reads_zero_advantage
    assert (
        why_sizes_matter("of next year", with_liger=False, top_entropy_quantile=1.0)
        == "nothing is known about loss_type of next year"
    )
    assert not (unknown.whole_groups)
    assert not (unknown.over_window)


def test_sizes_matter_where_a_loss_divides_by_what_a_micro_batch_holds():
    def why(name, with_liger):
        return why_sizes_matter(name, with_liger=with_liger, top_entropy_quantile=1.0)

    assert why("bnpo", with_liger=False) == "loss_type bnpo is defined per micro-batch"
    assert why("dapo", with_liger=False) == ""
    assert "of liger" in why("dapo", with_liger=True)
    assert why("grpo", with_liger=True) == ""
