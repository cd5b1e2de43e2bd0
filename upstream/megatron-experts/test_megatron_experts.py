"""Experts that each tensor-parallel rank has in full train with the tokens of all ranks."""

import pytest

from tests.megatron.comparing import GRADIENT, gradient_differences
from tests.megatron.runs import train_megatron
from tests.megatron.table import FROZEN, SEQUENCE


@pytest.mark.timeout(280)
def test_gradients_of_experts_are_those_of_one_rank(python, tiny, four_rows, reference, tmp_path):
    model = tiny("qwen3_vl_moe")
    run = train_megatron(python, model, four_rows, tmp_path, 2, **SEQUENCE, **FROZEN, micro_batch_size=2)
    assert (run.mode["tp"], run.mode["ep"], run.mode["etp"]) == (2, 1, 1)
    apart = gradient_differences(run.gradients[0], reference("qwen3_vl_moe", **FROZEN).gradients[0])
    assert [name for name, share in apart.items() if share > GRADIENT] == []
