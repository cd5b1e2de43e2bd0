"""Faults of the stock stack under Megatron: they show without a fix of ours, and are gone with it."""

import pytest

from tests.megatron.comparing import assert_equal, gradient_differences
from tests.megatron.runs import FIXES, Order, RunError, train_all, train_megatron

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]

TENSOR = {"tensor_model_parallel_size": 2}
SEQUENCE = {**TENSOR, "sequence_parallel": True}


def both(python, model, rows, folder, **arguments):
    """Runs of two ranks without our fixes, and with them."""
    orders = [
        Order(model, rows, folder / "stock", arguments),
        Order(model, rows, folder / "fixed", {**arguments, **FIXES}),
    ]
    return train_all(python, orders, ranks=2)


def test_m1_the_norm_of_the_gradient(python, tiny, four_rows, reference, tmp_path):
    stock, fixed = both(python, tiny("qwen2_5_vl"), four_rows, tmp_path, **TENSOR)
    expected = reference().logs[0]["grad_norm"]
    assert max(gradient_differences(stock.gradients[0], reference().gradients[0]).values()) < 1e-5
    assert stock.logs[0]["grad_norm"] < 0.99 * expected
    assert_equal(fixed, reference())


def test_m2_before_the_first_step_stops(python, tiny, four_rows, tmp_path):
    with pytest.raises(RunError, match="must match the existing size"):
        train_megatron(python, tiny("qwen2_5_vl"), four_rows, tmp_path, ranks=2, **SEQUENCE)


def test_m2_micro_batches_of_four(python, tiny, four_rows, reference, tmp_path):
    run = train_megatron(python, tiny("qwen2_5_vl"), four_rows, tmp_path, ranks=2, **SEQUENCE, **FIXES)
    assert run.mode["sequence_parallel"]
    assert_equal(run, reference())
