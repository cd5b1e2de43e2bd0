"""A3 and B1 on DeepSpeed 0.18.9, which has them: a second copy in a folder of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import old_deepspeed as old_copy
import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.run import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1600), pytest.mark.xdist_group("old deepspeed")]

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]


@pytest.fixture(scope="session")
def old_deepspeed():
    """Environment in which the old copy is imported."""
    return old_copy.environment(HERE, PROJECT / "tests" / "e2e")


@pytest.fixture(scope="module")
def results(old_deepspeed, tiny_qwen, digits, tmp_path_factory):
    output = tmp_path_factory.mktemp("old_deepspeed")
    one_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    subprocess.run(
        [sys.executable, HERE / "old_deepspeed_runs.py", tiny_qwen, digits.train, output],
        env={**os.environ, **old_deepspeed, **one_rank, "MASTER_PORT": str(free_port())},
        check=True,
        timeout=1500,
    )
    return json.loads((output / "results.json").read_text())


def test_the_patches_apply(results):
    assert results["states"]["A3-zero3-trace"] == "applied"
    assert results["states"]["B1-zero2-offload"] == "applied"


def test_offload_with_accumulation_is_zero2(results):
    for healed, plain in zip(results["offload"], results["zero2"], strict=True):
        assert healed == pytest.approx(plain, rel=1e-5, abs=1e-6)


def test_stock_offload_loses_micro_batches(results):
    assert results["offload, stock"][0]["grad_norm"] < 0.95 * results["zero2"][0]["grad_norm"]


def test_lora_with_zero3_trains_past_the_second_rollout(results):
    assert len(results["lora zero3"]) == 3
    assert all(row["grad_norm"] > 0 for row in results["lora zero3"])


def test_stock_lora_with_zero3_does_not(results):
    assert "pop from an empty deque" in results["lora zero3, stock"]


@pytest.mark.parametrize(("run", "rule"), [("offload, unhealed", "B1"), ("lora zero3, unhealed", "A3")])
def test_what_is_not_healed_is_refused(results, run, rule):
    assert results[run].startswith(f"RefusedError: swift-grpo-ext: {rule}: ")
    assert 'pip install "deepspeed>=0.19.2"' in results[run]


@pytest.mark.two_ranks
def test_lora_with_zero3_on_two_ranks_through_the_command(old_deepspeed, tiny_qwen, digits, tmp_path):
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path,
        seed=1,
        external_plugins=[HERE / "gloo_first.py", PROJECT / "tests/e2e/length_reward.py", plugin_file()],
        reward_funcs="even_characters",
        tuner_type="lora",
        deepspeed="zero3",
        max_steps=3,
    )
    testing.run_swift("rlhf", arguments, old_deepspeed, ranks=2, timeout=900)
    steps = [row for row in testing.read_logging(tmp_path) if "loss" in row]
    assert len(steps) == 3
