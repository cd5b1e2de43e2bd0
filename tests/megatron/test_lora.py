"""LoRA of Megatron: its first log-probs against transformers, and from one adapter on two ranks against one."""

import pytest

from tests.megatron.comparing import (
    LOG_PROBS,
    assert_equal,
    log_prob_difference,
)
from tests.megatron.runs import train_megatron, train_transformers
from tests.megatron.table import LORA, TENSOR
from tests.megatron.test_faults import both

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def fresh(python, tiny, four_rows, tmp_path_factory):
    """A run on one rank that begins with a new adapter, and saves it."""
    return train_megatron(python, tiny("qwen2_5_vl"), four_rows, tmp_path_factory.mktemp("fresh"), **LORA)


def test_the_first_log_probs_are_those_of_transformers(fresh, tiny, four_rows, tmp_path):
    """An adapter begins as nothing, with other random numbers in each engine: later steps differ."""
    other = train_transformers(tiny("qwen2_5_vl"), four_rows, tmp_path, **LORA)
    assert fresh.mode["frozen"] > fresh.mode["trainable"] > 0
    assert log_prob_difference(fresh.samples[0], other.samples[0]) <= LOG_PROBS


def test_m4_the_norm_on_two_ranks(fresh, python, tiny, four_rows, tmp_path):
    """From the adapter that the first run saved."""
    again = {**LORA, "adapters": fresh.folder / "checkpoint-3"}
    one = train_megatron(python, tiny("qwen2_5_vl"), four_rows, tmp_path / "one", **again)
    stock, fixed = both(python, tiny("qwen2_5_vl"), four_rows, tmp_path, **again, **TENSOR)
    assert stock.logs[0]["grad_norm"] > 1.01 * one.logs[0]["grad_norm"]
    assert_equal(fixed, one)
