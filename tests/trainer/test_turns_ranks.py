"""Rows of several turns, and branches of a search, on two ranks: what ranks log equals ms-swift's chunks."""

from functools import cache
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


def options_of(form, family):
    size = 4 if form == "turns" else 8
    return {
        "loss_type": "dapo",
        "reward_funcs": "first_answer" if form == "turns" else "even_characters",
        "max_steps": 2,
        "max_length": 2048,
        "num_generations": size,
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": 1,
        **TINY[family].host,
    }


@pytest.fixture(scope="module")
def stock(shared_folder, digits, tmp_path_factory):
    """`stock(form, family)`: the model, and what ms-swift logs with every rank's parameters in full."""

    @cache
    def run(form, family):
        model = built_once(
            shared_folder / f"tiny_{family}", lambda folder: testing.tiny_checkpoint(family, folder)
        )
        output = tmp_path_factory.mktemp("stock")
        return model, steps(model, digits.train, output, form, options_of(form, family), STOCK)

    return run


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("form", "family"),
    [("turns", "qwen2_5_vl"), ("turns", "qwen3_5"), ("branches", "qwen2_5_vl")],  # Qwen3.5 needs two packs
)
def test_two_ranks_equal_stock(form, family, way, stock, digits, tmp_path):
    model, expected = stock(form, family)
    ours = steps(model, digits.train, tmp_path, form, {**options_of(form, family), **WAYS[way]}, {})
    assert gains(tmp_path)["shared_prefix"]["state"] == "on"
    same(ours, expected)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "DDP"])
def test_chunks_without_packs_equal_those_of_full_parameters(way, stock, digits, tmp_path):
    """Reentrant checkpoints of several passes gave ZeRO-3 twice the gradient, and ended ZeRO-2."""
    model, expected = stock("turns", "qwen2_5_vl")
    options = {**options_of("turns", "qwen2_5_vl"), **WAYS[way]}
    same(steps(model, digits.train, tmp_path, "turns", options, STOCK), expected)


def same(ours, expected):
    assert len(ours) == len(expected) == 2
    for row, of_stock in zip(ours, expected, strict=True):
        assert of_stock["grad_norm"] > 0
        for name in ("loss", "grad_norm", "reward", "kl"):
            assert row[name] == pytest.approx(of_stock[name], rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("way", [way for way in WAYS if way != "DDP"])
def test_supervised_batches_beside_equal_those_of_full_parameters(way, stock, digits, tmp_path):
    model, _ = stock("turns", "qwen2_5_vl")
    chord = {
        "chord_sft_dataset": digits.train,
        "chord_sft_per_device_train_batch_size": 1,
        "chord_mu_warmup_steps": 0,
        "chord_mu_decay_steps": 2,
        "chord_mu_peak": 0.5,
        "chord_mu_valley": 0.1,
    }
    options = {**options_of("branches", "qwen2_5_vl"), **chord}
    expected = steps(model, digits.train, tmp_path / "ddp", "branches", options, {})
    same(steps(model, digits.train, tmp_path / "zero", "branches", {**options, **WAYS[way]}, {}), expected)
