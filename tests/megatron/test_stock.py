"""The stock Megatron trainer against the stock transformers trainer, on the same made-up completions.

Where a layout needs a fix of this package to be right, the test says so; test_faults.py shows it without.
"""

import pytest

from tests.megatron.comparing import assert_equal
from tests.megatron.runs import train_megatron

pytestmark = pytest.mark.timeout(600)  # two runs of 20 seconds, on a busy machine

GATE = ("one rank", "tensor parallel")
# Processes, arguments, and what of the run's mode must then be so.
LAYOUTS = {
    "one rank": (1, {}, {"tp": 1, "padding_free": True, "recompute": "none"}),
    "padded rows": (1, {"padding_free": False}, {"padding_free": False}),
    "selective recomputation": (1, {"recompute_granularity": "selective"}, {"recompute": "selective"}),
    "full recomputation": (
        1,
        {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
        {"recompute": "full"},
    ),
    "tensor parallel": (
        2,
        {"tensor_model_parallel_size": 2, "perform_initialization": True},
        {"tp": 2, "sequence_parallel": False},
    ),
    "sequence parallel": (
        2,
        {
            "tensor_model_parallel_size": 2,
            "sequence_parallel": True,
            "micro_batch_size": 2,
            "perform_initialization": True,
        },
        {"tp": 2, "sequence_parallel": True},
    ),
    "pipeline": (2, {"pipeline_model_parallel_size": 2}, {"pp": 2}),
    "pipeline, full recomputation": (
        2,
        {
            "pipeline_model_parallel_size": 2,
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        },
        {"pp": 2, "recompute": "full"},
    ),
    "data parallel": (2, {}, {"dp": 2, "distributed_optimizer": True}),
}


def params(table):
    """Rows of a table by name; those that are not in the gate are run by `make test-megatron`."""
    return [
        pytest.param(*row, id=name, marks=() if name in GATE else pytest.mark.lane)
        for name, row in table.items()
    ]


@pytest.mark.parametrize(("ranks", "arguments", "mode"), params(LAYOUTS))
def test_layout(ranks, arguments, mode, python, tiny, four_rows, reference, tmp_path):
    run = train_megatron(python, tiny("qwen2_5_vl"), four_rows, tmp_path, ranks, **arguments)
    assert mode.items() <= run.mode.items()
    assert_equal(run, reference())
    counts, layers = run.counts[0], run.mode["layers"]
    assert counts["patches"] > 0
    packed = run.mode["padding_free"]
    assert counts["packed_attention_calls"] == (counts["attention_calls"] if packed else 0)
    if run.mode["pp"] == 1:
        again = run.mode["recompute"] != "none"
        assert (counts["attention_calls"] > layers * counts["decoder_calls"]) == again
