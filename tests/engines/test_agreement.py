"""vLLM and trainer are compared: each fault of the engine is named within two steps, health is silent."""

import pytest

from swift_grpo_ext.watch.journal import read_events
from tests.engines.conftest import grpo_with_vllm, rollout_server

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]

MOVES = {"learning_rate": 1e-2, "max_steps": 2}


def faults(run):
    """What was said of the engine."""
    (folder,) = (run.folder / "output").glob("v*")
    events = read_events(folder, ["verdict"])
    return [e["text"] for e in events if e["id"].startswith("engine-")]


def compared(run):
    return [row["watch/engine_ratio"] for row in run.steps if "watch/engine_ratio" in row]


@pytest.mark.parametrize(
    ("fault", "overrides", "words"),
    [
        ("temperature", {}, "it samples at temperature 0.3, the trainer at 0.9"),
        ("system", {}, "the system prompt differs"),
        ("never synced", {}, "they agreed at step 0, so the engine's weights are stale"),
        ("never synced", {"tuner_type": "lora"}, "the adapters were never applied"),
    ],
)
def test_a_fault_of_colocate_is_named(fault, overrides, words, tiny_qwen_stock, digits, tmp_path):
    run = grpo_with_vllm(
        tiny_qwen_stock,
        digits,
        tmp_path,
        {"ENGINE_FAULT": fault},
        **{"vllm_mode": "colocate", **MOVES, **overrides},
    )
    assert words in faults(run)[0]


def test_other_pixel_limits_on_a_server_are_named(tiny_qwen_stock, digits, tmp_path):
    with rollout_server(tiny_qwen_stock, tmp_path, {"MIN_PIXELS": str(112 * 112)}) as mode:
        run = grpo_with_vllm(tiny_qwen_stock, digits, tmp_path, {}, **mode, **MOVES)
    assert "image tokens, the trainer" in faults(run)[0]
    assert "MAX_PIXELS" in faults(run)[0]


@pytest.mark.parametrize("precision", [{}, {"torch_dtype": "bfloat16", "bf16": True}])
def test_a_healthy_run_is_silent(precision, tiny_qwen_stock, digits, tmp_path):
    run = grpo_with_vllm(
        tiny_qwen_stock,
        digits,
        tmp_path,
        {"SWIFT_GRPO_EXT_AGREE_EVERY": "5"},
        **{
            "vllm_mode": "colocate",
            "max_steps": 200,
            "learning_rate": 1e-4,
            "num_train_epochs": 100,
            **precision,
        },
    )
    assert faults(run) == []
    assert len(compared(run)) == 200
