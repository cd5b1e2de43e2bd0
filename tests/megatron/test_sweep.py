"""Random configurations: where ms-swift's Megatron trainer runs, ours does, learns the same, and goes on watching."""

import json

import pytest

from swift_grpo_ext.plugin_files import plugin_file
from tests.megatron.axes import drawn
from tests.megatron.comparing import gradient_differences
from tests.megatron.runs import Order, train_all

pytestmark = [pytest.mark.lane, pytest.mark.timeout(600)]
GRADIENT = 3e-5  # of a parameter's norm: rounding of earlier updates is in those of later ones


@pytest.mark.parametrize("seed", range(16))
def test_what_runs_with_ms_swift_runs_with_ours(seed, python, tiny, four_rows, mixed_rows, tmp_path):
    wanted = drawn(seed)
    print(wanted)  # shown where the test fails
    model = tiny(wanted.family)
    rows = mixed_rows if wanted.rows else four_rows
    ours = {**wanted.arguments, "external_plugins": [plugin_file("all")]}
    orders = [
        Order(model, rows, tmp_path / "stock", wanted.arguments),
        Order(model, rows, tmp_path / "ours", ours),
    ]
    stock, run = train_all(python, orders, wanted.ranks)
    assert len(run.logs) == len(stock.logs) == wanted.arguments["train_iters"]
    for step, expected in zip(run.gradients, stock.gradients, strict=True):
        assert max(gradient_differences(step, expected).values()) <= GRADIENT
    for log, expected in zip(run.logs, stock.logs, strict=True):
        names = {"loss", "grad_norm", *({"reward"} & expected.keys())}  # rewards once in a generation batch
        limits = {"rel": GRADIENT, "abs": 1e-6}
        assert {name: log[name] for name in names} == pytest.approx({n: expected[n] for n in names}, **limits)
    of_both = stock.output.splitlines()
    assert [line for line in of_both if "turned off" in line and "it took" not in line] == []
    gains = json.loads((run.folder / "gains.json").read_text(encoding="utf-8"))["gains"]
    assert gains["shared_prefix"]["state"] == "on"
    assert _sum(run, "head_rows") < _sum(stock, "head_rows")


def _sum(run, name):
    return sum(step.get(name, 0) for step in run.counts)
