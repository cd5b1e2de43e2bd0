"""The lint of spec cards, and the pages made from them."""

import dataclasses
import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from swift_grpo_ext.rewards.catalogue import NAMES, all_rewards
from tools.reward_pages import SECTIONS, card_of

REWARDS = all_rewards()
ROOT = Path(__file__).parents[2]
# Words that say what a number counts or is a fraction of.
UNITS = re.compile(r"\b(tokens?|fraction|IoU|unit|seconds?|words|from 0|at a time|[Ss]core|`max_tokens`)\b|%")


@pytest.fixture(params=NAMES)
def reward(request):
    return REWARDS[request.param]


def test_a_card_has_every_section_in_order(reward):
    shared = {field.name for group in reward.declared.groups.values() for field in dataclasses.fields(group)}
    expected = [name for name in SECTIONS if name != "Args" or reward.parameters.keys() - shared]
    card = card_of(reward)
    assert list(card.sections) == expected
    assert all(card.sections.values())
    assert card.summary.endswith(".")


def test_a_card_states_the_declared_range(reward):
    card = card_of(reward)
    span = f"{reward.low:g}..{reward.high:g}"
    right_or_wrong = (reward.low, reward.high) == (0, 1) and re.search(r"\b1\b.*\belse 0\b", card.summary)
    assert right_or_wrong or span in card.summary


def test_a_card_explains_each_parameter_and_names_the_unit_of_numbers(reward):
    meanings = card_of(reward).arguments
    assert sorted(meanings) == sorted(reward.parameters)
    hints = reward.declared.hints
    for name, meaning in meanings.items():
        if {float, int} & {hints[name], *getattr(hints[name], "__args__", ())}:
            assert UNITS.search(meaning), (name, meaning)


def test_a_card_names_the_columns_that_the_reward_reads(reward):
    card = card_of(reward)
    text = " ".join((card.summary, card.description, *card.sections.values()))
    for column in (*reward.gold[:1], *reward.reads[:1]):
        assert f"``{column}``" in text or "As for `ext_" in text, column


def test_a_card_says_when_there_is_no_score_and_in_which_frame(reward):
    sections = card_of(reward).sections
    assert ("Declared by" in sections["Frame"]) == ("frame" in reward.parameters)
    assert len(sections["Source"]) > 8


def test_the_example_of_a_card_runs(reward):
    example = doctest.DocTestParser().get_doctest(
        card_of(reward).sections["Example"], {}, reward.name, None, None
    )
    assert reward.name in example.docstring
    assert len(example.examples) > 1
    assert example.examples[-1].want
    told: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(example, out=told.append).failed == 0, "".join(told)


def test_the_pages_are_current():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "reward_pages.py", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
