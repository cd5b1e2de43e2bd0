"""A judge that forgets."""

import pytest

from swift_grpo_ext.rewards.runtime import judge_client as judging
from swift_grpo_ext.rewards.runtime.ledger import drain


@pytest.fixture
def fresh_judge(monkeypatch):
    """A judge that remembers no answer and hardly waits between two tries."""
    judging._kept.clear()
    drain(judging.NAME)
    monkeypatch.setattr(judging, "FIRST_PAUSE", 0.01)
