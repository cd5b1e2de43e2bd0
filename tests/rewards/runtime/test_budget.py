import pytest

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.runtime.budget import Budget, added, metrics
from swift_grpo_ext.rewards.runtime.ledger import Failure, Report

FIRST = Failure("r", "timeout", "no answer within 3 s", "completion 5 of the batch", "Traceback")
LATER = Failure("r", "error", "boom", "completion 0 of the batch")


def report(completions=100, failures=0, first=None):
    return Report(
        completions,
        completions - failures,
        failures=failures,
        timeouts=failures,
        first=first,
    )


def test_reports_of_ranks_add_up():
    total = added([{"r": report(failures=1, first=FIRST)}, {"r": report(), "s": report()}])
    assert total["r"].completions == 200
    assert total["r"].first is FIRST
    assert metrics(total)["rewards/r/failures"] == 1.0


def test_no_failure_is_allowed_with_a_budget_of_none():
    with pytest.raises(RewardError) as caught:
        Budget(0).check({"r": report(failures=1, first=FIRST)})
    message = str(caught.value)
    for part in (
        "reward 'r'",
        "no answer within 3 s",
        "completion 5 of the batch",
        "Traceback",
        "1 of the last",
    ):
        assert part in message


def test_failures_count_within_the_window_only():
    budget = Budget(0.05)
    for _ in range(100):
        budget.check({"r": report(failures=4, first=LATER)})
    budget.check({"r": report(failures=10, first=FIRST)})
    with pytest.raises(RewardError, match="boom"):
        budget.check({"r": report(failures=10, first=FIRST)})


def test_a_broken_contract_ends_the_run_at_once():
    refused = Failure("r", "refused", "returned 1 scores for 8", "one of 8 completions")
    total = added([{"r": report(failures=1, first=LATER)}, {"r": report(failures=8, first=refused)}])
    with pytest.raises(RewardError, match="returned 1 scores"):
        Budget(1).check(total)


@pytest.mark.parametrize("allowed", [0.05, 1.0])
def test_a_reward_whose_first_batches_failed_altogether_ends_the_run_whatever_else_scores(allowed):
    budget = Budget(allowed)
    budget.check({"r": report(8, failures=8, first=LATER), "s": report(8)})
    with pytest.raises(RewardError, match=r"boom.* 16 of the last 16 completions failed"):
        budget.check({"r": report(8, failures=8), "s": report(8)})


def test_a_reward_that_has_scored_may_lose_a_batch():
    budget = Budget(0.05)
    for _ in range(100):
        budget.check({"r": report(8)})
    budget.check({"r": report(8, failures=8, first=LATER)})
    budget.check({"r": report(8, failures=8)})


def test_a_share_counts_from_a_hundred_completions_on():
    budget = Budget(0.05)
    for _ in range(12):
        budget.check({"r": report(8, failures=2, first=LATER)})
    with pytest.raises(RewardError, match="26 of the last 104 completions failed, 5% of them may"):
        budget.check({"r": report(8, failures=2)})


def test_batches_that_hold_no_row_of_a_reward_say_nothing_of_it():
    budget = Budget(0.05)
    for _ in range(5):
        budget.check({"r": Report(), "s": report(8)})
    budget.check({"r": report(8, failures=8, first=LATER)})
    budget.check({"r": Report()})
    with pytest.raises(RewardError, match="boom"):
        budget.check({"r": report(8, failures=8)})


def test_the_share_that_was_not_read_is_a_metric():
    figures = metrics({"r": Report(completions=8, scored=8, unread=6), "s": Report()})
    assert figures["unread/r"] == 0.75
    assert "unread/s" not in figures
