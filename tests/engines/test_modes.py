"""Ways of rolling out that ms-swift has with vLLM alone: a gym environment's rewards, and one step ahead."""

import pytest

from tests.engines.conftest import HERE, TRAINER_PLUGINS, grpo_with_vllm, rollout_server

pytestmark = [pytest.mark.lane, pytest.mark.timeout(600)]
PLUGINS = {"external_plugins": [*TRAINER_PLUGINS, HERE / "gym.py"]}


def test_rewards_of_a_gym_environment_are_learned_from(tiny_qwen_stock, digits, tmp_path):
    gym = {"multi_turn_scheduler": "gym_scheduler", "gym_env": "even_characters", "max_turns": 2}
    run = grpo_with_vllm(
        tiny_qwen_stock, digits, tmp_path, {}, vllm_mode="colocate", reward_funcs=None, **PLUGINS, **gym
    )
    assert len(run.steps) == 2
    for step in run.steps:
        assert step["num_turns"] == 2
        assert 0 < step["reward"] < 2, "at most 1 a turn"
        assert step["rewards/gym_reward/mean"] == pytest.approx(step["reward"])
        assert step["grad_norm"] > 0


def test_a_rollout_that_is_a_step_ahead_trains(tiny_qwen_stock, digits, tmp_path):
    with rollout_server(tiny_qwen_stock, tmp_path, {}) as mode:
        run = grpo_with_vllm(
            tiny_qwen_stock,
            digits,
            tmp_path,
            {},
            **mode,
            async_generate=True,
            max_steps=4,
            learning_rate=1e-2,
        )
    assert len(run.steps) == 4
    assert all(step["grad_norm"] > 0 for step in run.steps)
    apart = {step: max(row["distance"] for row in run.logps if row["step"] == step) for step in range(4)}
    assert apart[0] < 1e-3 < apart[3], "the engine samples with the weights of the step before"
