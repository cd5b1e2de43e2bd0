"""A3 and B1 on DeepSpeed 0.18.9, which has them (a second copy in a folder of its own), and on the installed one."""

import json
import os
import subprocess
import sys

import pytest
from old_deepspeed import PROJECT, RECOMMENDED, TESTS, environment_of, one_rank

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from tests.asserted_modes import asserting_mode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1600), pytest.mark.xdist_group("old deepspeed")]


@pytest.fixture(scope="module", params=[RECOMMENDED, ""], ids=["old", "installed"])
def environment(request):
    """Environment of a run on one of the two."""
    return environment_of(request.param, TESTS, TESTS / "compat", TESTS / "e2e")


@pytest.fixture(scope="module")
def results(environment, tiny_qwen, digits, tmp_path_factory):
    output = tmp_path_factory.mktemp("deepspeed")
    subprocess.run(
        [sys.executable, TESTS / "compat" / "old_deepspeed_runs.py", tiny_qwen, digits.train, output],
        env={**os.environ, **environment, **one_rank()},
        check=True,
        timeout=1500,
    )
    return json.loads((output / "results.json").read_text())


only_old = pytest.mark.parametrize("environment", [RECOMMENDED], indirect=True, ids=["old"])


@only_old
def test_the_patches_apply(results):
    assert results["states"]["A3-zero3-trace"] == "applied"
    assert results["states"]["B1-zero2-offload"] == "applied"


@pytest.mark.parametrize("run", ["offload", "zero1 offload"])
def test_offload_with_accumulation_is_zero2(results, run):
    for healed, plain in zip(results[run], results["zero2"], strict=True):
        assert healed == pytest.approx(plain, rel=1e-5, abs=1e-6)


@only_old
def test_stock_offload_loses_micro_batches(results):
    assert results["offload, stock"][0]["grad_norm"] < 0.95 * results["zero2"][0]["grad_norm"]


def test_zero0_with_bf16_trains_as_without_deepspeed(results):
    """B11 was fixed in 0.18.6: no step is scaled down, and no gradient is left over from the one before."""
    for deepspeed, plain in zip(results["zero0 bf16"], results["plain bf16"], strict=True):
        assert deepspeed["grad_norm"] == pytest.approx(plain["grad_norm"], rel=0.1)


def test_lora_with_zero3_trains_past_the_second_rollout(results):
    assert len(results["lora zero3"]) == 3
    assert all(row["grad_norm"] > 0 for row in results["lora zero3"])


@only_old
def test_stock_lora_with_zero3_does_not(results):
    assert "pop from an empty deque" in results["lora zero3, stock"]


@only_old
def test_what_is_not_healed_and_would_lose_micro_batches_is_refused(results):
    refused = results["offload, unhealed"]
    assert refused.startswith("RefusedError: swift-grpo-ext: B1: ")
    assert 'pip install "deepspeed>=0.19.2"' in refused


def steps_of_two_ranks(environment, model, data, output, **overrides):
    """What a run of two ranks through the command logged."""
    arguments = testing.grpo_arguments(
        model,
        data,
        output,
        seed=1,
        external_plugins=[
            PROJECT / "tests/e2e/gloo_for_zero3.py",
            PROJECT / "tests/e2e/length_reward.py",
            plugin_file(),
        ],
        reward_funcs="even_characters",
        **overrides,
    )
    words, mode = asserting_mode(arguments, ranks=2)
    testing.run_swift("rlhf", words, {**environment, **mode}, ranks=2, timeout=900)
    return [row for row in testing.read_logging(output) if "loss" in row]


@pytest.mark.two_ranks
def test_lora_with_zero3_on_two_ranks_through_the_command(environment, tiny_qwen, digits, tmp_path):
    options = {"tuner_type": "lora", "deepspeed": "zero3", "max_steps": 3}
    steps = steps_of_two_ranks(environment, tiny_qwen, digits.train, tmp_path, **options)
    assert len(steps) == 3
    assert all(step["grad_norm"] > 0 for step in steps)


@pytest.mark.two_ranks
def test_offload_is_zero2_on_two_ranks_through_the_command(environment, tiny_qwen, digits, tmp_path):
    accumulate = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
    healed, plain = (
        steps_of_two_ranks(
            environment, tiny_qwen, digits.train, tmp_path / name, deepspeed=name, **accumulate
        )
        for name in ("zero2_offload", "zero2")
    )
    for one, other in zip(healed, plain, strict=True):
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-5) != 0
