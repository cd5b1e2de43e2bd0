"""Agreement with the public test cases of peers stays where it is, and each difference is argued."""

import importlib.util
from pathlib import Path

import pytest

from swift_grpo_ext.rewards.catalogue import get_reward

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "reward_peers.py"


@pytest.fixture(scope="module")
def peers():
    spec = importlib.util.spec_from_file_location("reward_peers", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_agreement_with_peers(peers):
    cases = peers.read_cases()
    assert len(cases) >= 500
    assert len({case["peer"] for case in cases}) >= 12
    argued = [case for case in cases if "why" in case]
    missed = [case for case in cases if "why" not in case and not peers.agrees(case)]
    assert not missed
    assert 1 - len(argued) / len(cases) >= 0.97
    for case in argued:
        ours = get_reward(case["reward"])(case["completion"], case["row"])
        assert case["why"], case
        assert ours == pytest.approx(case["ours"], abs=0.001), case
        assert not peers.agrees(case)


def test_every_difference_is_in_the_docs(peers):
    docs = (BENCHMARK.parents[1] / "docs" / "benchmarks.md").read_text()
    assert all(case["why"] in docs for case in peers.read_cases() if "why" in case)
