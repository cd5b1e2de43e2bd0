"""vLLM, driven by the host, generates for a tiny Qwen2.5-VL what the trainer's own model would."""

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.testing.run import free_port
from tests.engines.conftest import ENVIRONMENT, HERE, grpo_with_vllm, rollout_server

pytestmark = pytest.mark.lane

# vLLM forbids placeholders and indicators, so it divides their probability, 4 / 151936 in a random model,
# among the rest; what is left is rounding of two implementations in float32.
TOLERANCE = 1e-3


def check(model, digits, folder, **mode):
    arguments = grpo_with_vllm(
        model,
        digits,
        folder / "output",
        more_plugins=[HERE / "record_logps.py"],
        learning_rate=1e-2,
        max_steps=3,
        **mode,
    )
    record = folder / "logps.jsonl"
    variables = {**ENVIRONMENT, "RECORD_LOGPS": str(record), "MASTER_PORT": str(free_port())}
    testing.run_swift("rlhf", arguments, env=variables, timeout=280)
    rows = testing.read_jsonl(record)
    assert {row["step"] for row in rows} == {0, 1, 2}  # two of them after a weight sync
    assert all(row["tokens"] > 0 for row in rows)
    assert max(row["distance"] for row in rows) < TOLERANCE
    assert rows[-1]["spread"] > 100 * TOLERANCE  # the model has moved far from where every token is alike
    steps = [row for row in testing.read_logging(folder / "output") if "loss" in row]
    assert len(steps) == 3
    assert all(step["grad_norm"] > 0 for step in steps)


def test_colocate(tiny_qwen_stock, digits, tmp_path):
    check(tiny_qwen_stock, digits, tmp_path, vllm_mode="colocate")


@pytest.mark.timeout(600)
def test_server(tiny_qwen_stock, digits, tmp_path):
    with rollout_server(tiny_qwen_stock, tmp_path) as mode:
        check(tiny_qwen_stock, digits, tmp_path, **mode)
