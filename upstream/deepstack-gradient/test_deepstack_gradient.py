"""Under sequence parallelism a tower that trains gets the gradient of all tokens through its deepstack."""

import pytest

from tests.megatron.comparing import GRADIENT, gradient_differences
from tests.megatron.runs import train_megatron
from tests.megatron.table import SEQUENCE


@pytest.mark.timeout(280)
def test_gradients_of_the_tower_are_those_of_one_rank(python, tiny, four_rows, reference, tmp_path):
    run = train_megatron(python, tiny("qwen3_vl"), four_rows, tmp_path, 2, **SEQUENCE, micro_batch_size=2)
    assert run.mode["sequence_parallel"]
    apart = gradient_differences(run.gradients[0], reference("qwen3_vl").gradients[0])
    assert [name for name, share in apart.items() if share > GRADIENT] == []
