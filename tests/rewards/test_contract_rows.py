"""The contract in rows: what each grammar reads, what it reads as something else, and what it refuses.

A row of kind ``right`` gets the highest score, ``wrong`` is read and gets less than half, ``unread`` gets the lowest
with a reason that says which grammar the text is not of. Beside wrong answers, hedges and lists of candidates are
what a policy has reason to try.
"""

import json
from pathlib import Path

import pytest

from swift_grpo_ext.rewards.catalogue import get_reward

ROWS = [json.loads(line) for line in Path(__file__).with_name("contract_rows.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("case", ROWS, ids=lambda case: f"{case['reward']}-{case['answer'][:40]}")
def test_a_row_of_the_contract(case):
    reward = get_reward(case["reward"])
    outcome = reward.outcome(case["answer"], case["row"])
    if case["kind"] == "right":
        assert (outcome.score, outcome.reason) == (reward.high, "")
        assert outcome.read
    elif case["kind"] == "wrong":
        assert outcome.score < 0.5 * reward.high
        assert outcome.reason
        assert not outcome.unread
    else:
        assert outcome.score == reward.low
        assert outcome.unread
        assert outcome.read is None
