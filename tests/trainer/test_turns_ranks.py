"""Rows of several turns, and branches of a search, on two ranks: what ranks log equals ms-swift's chunks."""

from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.families import TINY
from tests.conftest import built_once
from tests.forked import run_ranks
from tests.trainer.runs import REWARD, STOCK, gains

HERE = Path(__file__).parent
GLOO = HERE.parent / "e2e" / "gloo_for_zero3.py"
WAYS = {
    "DDP": {},
    "ZeRO-2": {"deepspeed": "zero2"},
    "ZeRO-3": {"deepspeed": "zero3"},
}
pytestmark = [pytest.mark.slow, pytest.mark.two_ranks, pytest.mark.timeout(600)]


def steps(model, dataset, output, form, options, switches):
    plugins = [GLOO, HERE / "many_rows_plugin.py", REWARD, plugin_file()]
    arguments = testing.grpo_arguments(model, dataset, output, external_plugins=plugins, **options)
    variables = {f"SWIFT_GRPO_EXT_{name}": value for name, value in switches.items()}
    run_ranks("rlhf", arguments, {**variables, "ROWS_OF": form}, timeout=280)
    return [row for row in testing.read_logging(output) if "loss" in row]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", ["turns", "branches"])
def test_two_ranks_equal_stock(form, way, shared_folder, digits, tmp_path):
    model = built_once(
        shared_folder / "tiny_qwen2_5_vl", lambda folder: testing.tiny_checkpoint("qwen2_5_vl", folder)
    )
    size = 4 if form == "turns" else 8
    options = {
        "loss_type": "dapo",
        "reward_funcs": "first_answer" if form == "turns" else "even_characters",
        "max_steps": 2,
        "max_length": 2048,
        "num_generations": size,
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": 1,
        **TINY["qwen2_5_vl"].host,
        **WAYS[way],
    }
    stock = steps(model, digits.train, tmp_path / "stock", form, options, STOCK)
    ours = steps(model, digits.train, tmp_path / "ours", form, options, {})
    assert gains(tmp_path / "ours")["shared_prefix"]["state"] == "on"
    assert len(stock) == len(ours) == 2
    for expected, row in zip(stock, ours, strict=True):
        assert expected["grad_norm"] > 0
        for name in ("loss", "grad_norm", "reward", "kl"):
            assert row[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-5), name
