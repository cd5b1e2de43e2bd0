"""Agreement with a careful human on `benchmarks/reward_styles*.jsonl` stays where it is."""

import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest

from swift_grpo_ext.rewards.catalogue import NAMES, get_reward

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FLOOR = 0.97


@pytest.fixture(scope="module")
def styles():
    spec = importlib.util.spec_from_file_location("reward_styles", BENCHMARKS / "reward_styles.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def measured(styles):
    return styles.agreement(styles.read_styles())


def test_the_set_covers_rewards_and_families(styles):
    cases = styles.read_styles()
    assert len(cases) >= 600
    assert {case["reward"] for case in cases} == set(NAMES)
    assert min(Counter(case["reward"] for case in styles.read_styles("second")).values()) >= 15
    families = Counter(case["family"] for case in cases)
    assert sum(number >= 9 for number in families.values()) >= 15
    assert {case["language"] for case in cases} >= {"en", "zh", "ja", "ko"}


@pytest.mark.parametrize("reward", NAMES)
def test_agreement_with_a_human(measured, reward):
    agreed, wrong = measured
    rate = sum(agreed[reward]) / len(agreed[reward])
    missed = [(case["completion"], case["human"], case["ours"]) for case in wrong if case["reward"] == reward]
    assert rate >= FLOOR, missed


def test_no_attack_pays(styles, measured):
    attacks = [case for case in styles.read_styles(*list(styles.STYLES)[3:]) if "attack" in case]
    assert len(attacks) >= 180
    assert len({case["attack"] for case in attacks}) >= 12
    assert {case["human"] for case in attacks} == {0}
    paid = [case for case in measured[1] if "attack" in case]
    assert not paid


SHORT = [json.loads(line) for line in (Path(__file__).parent / "short_answers.jsonl").open(encoding="utf-8")]


@pytest.mark.parametrize("reward", sorted({case["reward"] for case in SHORT}))
def test_short_answers_right_and_wrong(reward):
    cases = [case for case in SHORT if case["reward"] == reward]
    scored = [(case, get_reward(reward)(case["completion"], case["row"])) for case in cases]
    assert not [
        (case["completion"], score)
        for case, score in scored
        if score != pytest.approx(case["human"], abs=0.02)
    ]
