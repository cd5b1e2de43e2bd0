"""vLLM, driven by the host, generates for a tiny Qwen2.5-VL what the trainer's own model would.

In each run the engine is tempted: a bias makes every placeholder and indicator more likely than all other
tokens together. With the placeholder guard none of them is sampled, and the log-probs of what is are those of the
trainer's model, before and after a weight sync; without it nothing else is sampled.
"""

import pytest

from tests.engines.conftest import grpo_with_vllm, rollout_server

pytestmark = [pytest.mark.lane, pytest.mark.timeout(600)]

UNGUARDED = {"SWIFT_GRPO_EXT_DISABLE": "compat.C3"}

# The guard takes placeholders and indicators away and so divides their probability, 4 / 151936 in a random model,
# among the rest; what is left is rounding of two implementations in float32.
TOLERANCE = 1e-3


@pytest.fixture(params=["colocate", "server"])
def train(request, tiny_qwen_stock, digits, tmp_path):
    """Train for some steps with rollouts by a tempted vLLM, and return what was recorded and logged."""

    def train(max_steps, variables):
        run = {"learning_rate": 1e-2, "max_steps": max_steps}
        if request.param == "colocate":
            return grpo_with_vllm(tiny_qwen_stock, digits, tmp_path, variables, vllm_mode="colocate", **run)
        with rollout_server(tiny_qwen_stock, tmp_path, variables) as mode:
            return grpo_with_vllm(tiny_qwen_stock, digits, tmp_path, variables, **mode, **run)

    return train


def test_rollouts_are_the_policys_and_hold_no_placeholder(train):
    run = train(3, {})
    assert len(run.rollouts) == 12
    assert all(row["tokens"] > 0 and row["forbidden"] == 0 for row in run.rollouts)
    assert {row["step"] for row in run.logps} == {0, 1, 2}  # two of them after a weight sync
    assert all(row["tokens"] > 0 for row in run.logps)
    assert max(row["distance"] for row in run.logps) < TOLERANCE
    assert run.logps[-1]["spread"] > 100 * TOLERANCE, "the model is still where every token is alike"
    assert len(run.steps) == 3
    assert all(step["grad_norm"] > 0 for step in run.steps)
    assert all(step["completions/with_placeholder"] == 0 for step in run.steps)


def test_without_the_guard_placeholders_are_sampled_and_not_scored(train):
    run = train(1, UNGUARDED)
    assert all(row["forbidden"] == row["tokens"] > 0 for row in run.rollouts)
    (step,) = run.steps
    assert step["completions/with_placeholder"] == 1
    assert step["grad_norm"] == 0
