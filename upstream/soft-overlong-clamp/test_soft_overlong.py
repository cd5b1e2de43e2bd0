"""The penalty ends at -1, as in DAPO (arXiv 2503.14476, equation 13)."""

from types import SimpleNamespace

import pytest
from swift.rewards import orms


@pytest.mark.parametrize(
    ("length", "expected"), [(0, 0), (60, 0), (80, 0), (90, -0.5), (100, -1), (150, -1), (1000, -1)]
)
def test_penalty(length, expected):
    arguments = SimpleNamespace(soft_max_length=100, soft_cache_length=20)
    assert orms["soft_overlong"](arguments)([""], response_token_ids=[[0] * length]) == [expected]
