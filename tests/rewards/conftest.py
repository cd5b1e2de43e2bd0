"""A judge that forgets."""

import pytest

from swift_grpo_ext.rewards.runtime import judge_client as judging


@pytest.fixture
def fresh_judge(monkeypatch):
    """A judge that remembers no answer, and a client that hardly waits between two tries."""
    judging._kept.clear()
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
