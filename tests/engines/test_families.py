"""A family that is derived, through vLLM: it samples what the trainer's model would, and no placeholder."""

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.models.families.sizes import INTERLEAVED
from tests.engines.conftest import grpo_with_vllm

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]

# vLLM's attention on a CPU has no heads of 16.
WIDER = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
ROPE = {**INTERLEAVED, "mrope_section": [8, 4, 4]}
FAMILIES = {"qwen3_vl": {**WIDER, "rope_parameters": ROPE}}
TOLERANCE = 1e-3  # as in test_rollouts.py, and with as large a vocabulary


@pytest.mark.parametrize("family", FAMILIES)
def test_rollouts_are_the_policys_and_hold_no_placeholder(family, digits, tmp_path):
    model = testing.tiny_checkpoint(family, tmp_path / "model", stock_vocabulary=True, **FAMILIES[family])
    run = grpo_with_vllm(model, digits, tmp_path, {}, vllm_mode="colocate", learning_rate=1e-2, max_steps=2)
    assert all(row["tokens"] > 0 and row["forbidden"] == 0 for row in run.rollouts)
    assert {row["step"] for row in run.logps} == {0, 1}  # the second after a weight sync
    assert max(row["distance"] for row in run.logps) < TOLERANCE
    assert all(step["grad_norm"] > 0 for step in run.steps)
