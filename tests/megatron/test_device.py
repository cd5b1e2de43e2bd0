"""Our Megatron trainer on a GPU made of main memory (tests/device), in place of CUDA read as the CPU."""

import json

import pytest

from swift_grpo_ext.plugin_files import plugin_file
from tests.megatron.runs import Order, train_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
WAYS = {
    "full": {},
    "LoRA": {"tuner_type": "lora", "freeze_vit": True, "freeze_aligner": True},
    "recomputed": {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
}


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_figures_on_the_device_are_those_of_the_cpu(family, python, tiny, four_rows, tmp_path, monkeypatch):
    def train(place):
        orders = [
            Order(
                tiny(family),
                four_rows,
                tmp_path / place / name,
                {"external_plugins": plugin_file(), **options},
                gradients=False,
            )
            for name, options in WAYS.items()
        ]
        return train_all(python, orders)

    on_cpu = train("cpu")
    monkeypatch.setenv("CUDA_AS", "made up")
    on_device = train("device")
    assert "self-check failed" not in on_device[0].output  # of all of them
    assert "pass raised" not in on_device[0].output
    for name, plain, run in zip(WAYS, on_cpu, on_device, strict=True):
        gains = json.loads((run.folder / "gains.json").read_text())["gains"]
        assert gains["shared_prefix"]["state"] == "on", name
        assert len(run.logs) == len(plain.logs) == 3
        for expected, found in zip(plain.logs, run.logs, strict=True):
            for figure in ("loss", "kl", "grad_norm"):
                assert found[figure] == pytest.approx(expected[figure], rel=1e-5, abs=1e-6), (name, figure)
