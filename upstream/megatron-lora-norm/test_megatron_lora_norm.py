"""LoRA factors that each tensor-parallel rank has in full count once in the norm of the gradient."""

import pytest

from tests.megatron.runs import train_megatron
from tests.megatron.table import LORA, TENSOR


@pytest.mark.timeout(280)
def test_the_norm_on_two_ranks_is_that_on_one(python, tiny, four_rows, tmp_path):
    model = tiny("qwen2_5_vl")
    one = train_megatron(python, model, four_rows, tmp_path / "one", **LORA)
    again = {**LORA, "adapters": one.folder / "checkpoint-3"}
    norms = [
        train_megatron(python, model, four_rows, tmp_path / f"{ranks}", ranks, **again, **layout).logs[0][
            "grad_norm"
        ]
        for ranks, layout in ((1, {}), (2, TENSOR))
    ]
    assert norms[1] / norms[0] == pytest.approx(1, abs=1e-5)
