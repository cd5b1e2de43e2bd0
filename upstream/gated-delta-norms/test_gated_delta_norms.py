"""With tensor parallelism the norms of gated delta nets get the gradient of all heads and tokens, once."""

import pytest

from tests.megatron.comparing import GRADIENT, gradient_differences
from tests.megatron.runs import Order, train_all
from tests.megatron.table import SEQUENCE, TENSOR


@pytest.mark.timeout(280)
def test_gradients_of_norms_are_those_of_one_rank(python, tiny, four_rows, reference, tmp_path):
    layouts = {"tensor": TENSOR, "sequence": {**SEQUENCE, "micro_batch_size": 2}}
    model, expected = tiny("qwen3_5"), reference("qwen3_5").gradients[0]
    orders = [Order(model, four_rows, tmp_path / name, layout) for name, layout in layouts.items()]
    for run in train_all(python, orders, ranks=2):
        apart = gradient_differences(run.gradients[0], expected)
        assert [name for name, share in apart.items() if share > GRADIENT] == []
