"""vLLM and trainer are compared: each fault of the engine is found within two steps, health is silent."""

import threading
import time

import pytest

from swift_grpo_ext.errors import HostRunError
from swift_grpo_ext.testing.run import free_port
from tests.engines.conftest import (
    Recorded,
    compared,
    faults,
    grpo_with_vllm,
    rollout_server,
    said,
    wait_until_free,
)

pytestmark = [pytest.mark.lane, pytest.mark.timeout(1800)]

MOVES = {"learning_rate": 1e-2, "max_steps": 2}
LORA = {"tuner_type": "lora", "target_modules": "all-linear"}
DIFFERENT = "the engine runs different weights (another checkpoint"
PROMPT = "got another prompt than the trainer: token"
STALE = "they agreed at step 0, so the engine's weights are stale"


@pytest.mark.parametrize(
    ("fault", "overrides", "words"),
    [
        ("temperature", {}, DIFFERENT),
        ("top_p", {}, DIFFERENT),
        ("system", {}, PROMPT),
        ("pixels", {}, " tokens in the engine and "),
        ("never synced", {}, STALE),
        ("never synced", LORA, STALE),
    ],
)
def test_a_fault_of_colocate_is_found(fault, overrides, words, tiny_qwen_stock, digits, tmp_path):
    run = grpo_with_vllm(
        tiny_qwen_stock,
        digits,
        tmp_path,
        {"ENGINE_FAULT": fault},
        **{"vllm_mode": "colocate", **MOVES, **overrides},
    )
    assert words in faults(run)[0]


@pytest.mark.parametrize(
    ("server", "options", "trainer", "overrides", "words"),
    [
        ({"MIN_PIXELS": str(112 * 112)}, {}, {}, {}, " tokens in the engine and "),
        # ms-swift sends its default system prompt along; with none the server has its own.
        ({"ENGINE_FAULT": "system"}, {}, {}, {}, PROMPT),
        (
            {"ENGINE_FAULT": "temperature"},
            {},
            {},
            {},
            DIFFERENT,
        ),
        ({}, {}, {"ENGINE_FAULT": "never synced"}, {}, STALE),
        (
            {},
            {"vllm_enable_lora": True, "vllm_max_lora_rank": 8},
            {"ENGINE_FAULT": "adapters never sent"},
            {**LORA, "lora_rank": 8},
            STALE,
        ),
    ],
    ids=["pixels", "system", "temperature", "never-synced", "lora"],
)
def test_a_fault_of_a_server_is_found(
    server, options, trainer, overrides, words, tiny_qwen_stock, digits, tmp_path
):
    with rollout_server(tiny_qwen_stock, tmp_path, server, **options) as mode:
        run = grpo_with_vllm(tiny_qwen_stock, digits, tmp_path, trainer, **mode, **{**MOVES, **overrides})
    assert words in faults(run)[0]


def test_rollouts_one_step_behind_are_no_fault(tiny_qwen_stock, digits, tmp_path):
    with rollout_server(tiny_qwen_stock, tmp_path, {}) as mode:
        run = grpo_with_vllm(
            tiny_qwen_stock, digits, tmp_path, {}, **mode, **{**MOVES, "max_steps": 3}, async_generate=True
        )
    assert faults(run) == []
    first, *later = compared(run)
    assert first < 1.002 < max(later), "the first is of the same weights, later ones are not"


def test_a_server_that_restarts_ends_the_run_in_the_next_sync(tiny_qwen_stock, digits, tmp_path):
    """It has the weights of its checkpoint again, and no sync reaches it: its communicator is of another life."""
    port, again = free_port(), []
    first = rollout_server(tiny_qwen_stock, tmp_path, {}, port)
    mode = first.__enter__()

    def restart():
        while not (tmp_path / "restart").exists():
            time.sleep(0.5)
        first.__exit__(None, None, None)
        wait_until_free(port)
        again.append(rollout_server(tiny_qwen_stock, tmp_path, {}, port))
        again[0].__enter__()
        (tmp_path / "restarted").touch()

    thread = threading.Thread(target=restart, daemon=True)
    thread.start()
    chosen = {**mode, **MOVES, "reward_funcs": "after_the_restart"}
    try:
        with pytest.raises(HostRunError):
            grpo_with_vllm(tiny_qwen_stock, digits, tmp_path, {}, **chosen)
    finally:
        for server in again:
            server.__exit__(None, None, None)
    (failed,) = said(Recorded(tmp_path), "failed")
    assert failed["phase"] == "weight_sync"


SPECULATIVE = {
    "vllm_speculative_config": {
        "method": "ngram",
        "num_speculative_tokens": 2,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 1,
    }
}


@pytest.mark.parametrize(
    "overrides", [SPECULATIVE, LORA, {"top_p": 0.8}], ids=["speculative", "lora", "top_p"]
)
def test_what_changes_how_an_engine_works_and_not_what_it_samples_is_no_fault(
    overrides, tiny_qwen_stock, digits, tmp_path
):
    run = grpo_with_vllm(
        tiny_qwen_stock, digits, tmp_path, {}, **{"vllm_mode": "colocate", **MOVES, **overrides}
    )
    assert faults(run) == []
    assert len(compared(run)) == 2


LONG = {"max_steps": 200, "learning_rate": 1e-4, "num_train_epochs": 100, "max_completion_length": 24}
BF16 = {"torch_dtype": "bfloat16", "bf16": True}


@pytest.mark.parametrize("precision", [{}, BF16], ids=["fp32", "bf16"])
def test_200_healthy_steps_of_colocate_are_silent(precision, tiny_qwen_stock, digits, tmp_path):
    run = grpo_with_vllm(
        tiny_qwen_stock,
        digits,
        tmp_path,
        {},
        **{"vllm_mode": "colocate", **LONG, **precision},
    )
    assert faults(run) == []
    assert len(compared(run)) == 200
    assert any(event["id"] == "bill" for event in said(run, "note"))
    assert all("seconds/encode" in row for row in run.steps)


@pytest.mark.parametrize("precision", [{}, BF16], ids=["fp32", "bf16"])
def test_200_healthy_steps_of_a_server_are_silent(precision, tiny_qwen_stock, digits, tmp_path):
    server = {"torch_dtype": precision.get("torch_dtype", "float32")}
    with rollout_server(tiny_qwen_stock, tmp_path, {}, **server) as mode:
        run = grpo_with_vllm(
            tiny_qwen_stock,
            digits,
            tmp_path,
            {},
            **mode,
            **LONG,
            **precision,
        )
    assert faults(run) == []
    assert len(compared(run)) == 200
