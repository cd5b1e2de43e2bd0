"""Turns that an environment drives, gym's or OpenEnv's: compared like others, and a fault of one is found."""

from types import SimpleNamespace

import pytest
from swift.rollout.gym_env import Env
from swift.rollout.multi_turn import GYMScheduler, OpenEnvScheduler

from swift_grpo_ext import testing
from tests.trainer.test_engine_check import run

QUESTION = "Is this digit even?"


class TwoQuestions(Env):
    """Asks, and once more."""

    async def reset(self, config):
        self.turn = 0
        return QUESTION, {}, ""

    async def step(self, action):
        self.turn += 1
        return "And this one?", 0.5, self.turn == 2, {}

    async def close(self):
        """Nothing is open."""


class Connected:
    """The same as OpenEnv's wrapper of a client gives it: observations are no text yet."""

    def reset(self):
        self.turn = 0
        return {"question": QUESTION}, None

    def step(self, action):
        self.turn += 1
        return {"question": "And this one?"}, 0.5, self.turn == 2, None

    def close(self):
        """Nothing is open."""


@pytest.mark.parametrize(
    "scheduler", ["gym_scheduler", pytest.param("openenv_scheduler", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("fault", ["", "another question@2"])
def test_turns_of_an_environment(scheduler, fault, tiny_qwen, digits, tmp_path, monkeypatch):
    monkeypatch.setattr(GYMScheduler, "_create_env", lambda scheduler, config: TwoQuestions(config))
    monkeypatch.setattr(OpenEnvScheduler, "_create_env", lambda scheduler, config: Connected())
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"messages": [{"role": "user", "content": "Begin."}]}\n' * 8)
    turns = {"multi_turn_scheduler": scheduler, "max_turns": 2, "max_steps": 2}
    found = run(tiny_qwen, SimpleNamespace(train=rows), tmp_path / "run", monkeypatch, fault, **turns)
    steps = [row for row in testing.read_logging(tmp_path / "run") if "loss" in row]
    assert all(step["num_turns"] == 2 for step in steps)
    if not fault:
        assert all(step["watch/engine_ratio"] < 1.0001 for step in steps)
        assert found == []
        return
    assert found[0]["id"] == "engine-prompt"
    assert "got another prompt than the trainer: token" in found[0]["text"]
