"""The stock Megatron trainer against the stock transformers trainer, on the same made-up completions.

Layouts that need a fix of ours to be right have it; test_faults.py shows them without.
"""

import pytest

from tests.conftest import built_once
from tests.megatron.comparing import assert_equal
from tests.megatron.runs import FIXES, Order, Run, train_all

pytestmark = pytest.mark.timeout(600)  # two runs of 20 seconds, on a busy machine

GATE = ("one rank", "pipeline", "sequence parallel")
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
    "data parallel": (2, {"micro_batch_size": 2}, {"dp": 2, "distributed_optimizer": True}),
    # Last, since fixes stay: without those of M1 and M2 this layout is wrong, see test_faults.py.
    "sequence parallel": (
        2,
        {"tensor_model_parallel_size": 2, "sequence_parallel": True, **FIXES},
        {"tp": 2, "sequence_parallel": True},
    ),
}


EXPERTS = {"expert_model_parallel_size": 2, "micro_batch_size": 2}
# Family, processes, arguments, and what of the run's mode must then be so.
FAMILIES = {
    "Qwen3-VL": ("qwen3_vl", 1, {}, {}),
    "Qwen3-MoE": ("qwen3_moe", 1, {}, {}),
    "Qwen3-VL-MoE": ("qwen3_vl_moe", 1, {}, {}),
    "Qwen3-VL, pipeline": ("qwen3_vl", 2, {"pipeline_model_parallel_size": 2}, {"pp": 2}),
    "Qwen3-MoE, expert parallel": ("qwen3_moe", 2, EXPERTS, {"ep": 2, "dp": 2}),
    "Qwen3-VL-MoE, expert parallel": (
        "qwen3_vl_moe",
        2,
        {"expert_model_parallel_size": 2},
        {"ep": 2, "dp": 2},
    ),
}


def params(table):
    """Rows of a table by name; those that are not in the gate are run by `make test-megatron`."""
    return [pytest.param(name, id=name, marks=() if name in GATE else pytest.mark.lane) for name in table]


@pytest.fixture(scope="session")
def together(python, shared_folder):
    """Make runs of several names in the same processes, once; returns the run of one."""

    def train(key, orders, ranks, name):
        def build(folder):
            made = [
                Order(model, rows, folder / other, options)
                for other, (model, rows, options) in orders.items()
            ]
            train_all(python, made, ranks)

        return Run(built_once(shared_folder / "megatron_runs" / key, build) / name)

    return train


@pytest.fixture(scope="session")
def layout(together, tiny, four_rows):
    """The stock trainer's run of a layout. Those of as many ranks are made together, the gate's by themselves."""

    def train(name):
        ranks, in_gate = LAYOUTS[name][0], name in GATE
        same = [other for other in LAYOUTS if LAYOUTS[other][0] == ranks and (other in GATE) == in_gate]
        orders = {other: (tiny("qwen2_5_vl"), four_rows, LAYOUTS[other][1]) for other in same}
        return together(f"layouts_{ranks}_{in_gate}", orders, ranks, name)

    return train


@pytest.mark.parametrize("name", params(LAYOUTS))
def test_layout(name, layout, reference):
    run, mode = layout(name), LAYOUTS[name][2]
    assert mode.items() <= run.mode.items()
    assert_equal(run, reference())
    counts, layers = run.counts[0], run.mode["layers"]
    assert counts["patches"] > 0
    packed = run.mode["padding_free"]
    assert counts["packed_attention_calls"] == (counts["attention_calls"] if packed else 0)
    if run.mode["pp"] == 1:
        again = run.mode["recompute"] != "none"
        assert (counts["attention_calls"] > layers * counts["decoder_calls"]) == again


@pytest.mark.lane
@pytest.mark.parametrize("name", FAMILIES)
def test_family(name, together, tiny, rows_for, reference):
    family, ranks, _, mode = FAMILIES[name]
    orders = {
        other: (tiny(of), rows_for(of), arguments)
        for other, (of, needs, arguments, _) in FAMILIES.items()
        if needs == ranks
    }
    run = together(f"families_{ranks}", orders, ranks, name)
    assert mode.items() <= run.mode.items()
    assert_equal(run, reference(family))
