"""ms-swift's Ray trainer on Megatron: its driver and workers train as the transformers trainer does, on the same completions."""

import pytest

from tests.megatron.comparing import assert_equal
from tests.megatron.runs import FIXES, train_with_ray
from tests.megatron.table import OURS, PIPELINE, SEQUENCE, TENSOR

pytestmark = [pytest.mark.lane, pytest.mark.timeout(600)]
LAYOUTS = {
    "one worker": (1, {}, {"tp": 1}),
    "one worker, with our trainer": (1, {"external_plugins": [OURS]}, {"tp": 1}),
    "tensor parallel": (2, {**TENSOR, "perform_initialization": True}, {"tp": 2}),
    # Without fixes of M1 and M2 this layout is wrong, see test_faults.py: they are at work in Ray's workers, too.
    "sequence parallel, with fixes": (2, {**SEQUENCE, **FIXES}, {"tp": 2, "sequence_parallel": True}),
    "pipeline": (2, PIPELINE, {"pp": 2}),
    "data parallel": (2, {"micro_batch_size": 2}, {"dp": 2}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_workers_train_as_transformers_does(layout, python_with_ray, tiny, four_rows, reference, tmp_path):
    workers, arguments, mode = LAYOUTS[layout]
    run = train_with_ray(python_with_ray, tiny("qwen2_5_vl"), four_rows, tmp_path, workers, **arguments)
    assert len(run.ranks) == workers
    assert mode.items() <= run.mode.items()
    assert_equal(run, reference())
