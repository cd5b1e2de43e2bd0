"""No deadlines: the first example pays for imports, and the machine may be busy.

HYPOTHESIS_PROFILE=thousands runs each property on 2000 cases instead of 100.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from swift_grpo_ext.rewards import judging
from swift_grpo_ext.rewards.runtime.ledger import ledger

settings.register_profile("no-deadline", deadline=None)
settings.register_profile(
    "thousands", deadline=None, max_examples=2000, suppress_health_check=list(HealthCheck)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "no-deadline"))


@pytest.fixture
def fresh_judge(monkeypatch):
    """A judge that remembers no answer and hardly waits between two tries."""
    judging._kept.clear()
    ledger(judging.NAME).drain()
    monkeypatch.setattr(judging, "FIRST_PAUSE", 0.01)
