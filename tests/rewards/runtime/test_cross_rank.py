import pytest
import torch

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.runtime.cross_rank import Budget, added, metrics, task_means
from swift_grpo_ext.rewards.runtime.ledger import Failure, Report

FIRST = Failure("r", "timeout", "no answer within 3 s", "completion 5 of the batch", "Traceback")
LATER = Failure("r", "error", "boom", "completion 0 of the batch")


def report(completions=100, failures=0, first=None, seconds=(0.1,)):
    return Report(completions, failures, failures, seconds=list(seconds), first=first)


def test_reports_of_ranks_add_up():
    total = added([{"r": report(failures=1, first=FIRST)}, {"r": report(seconds=[0.3]), "s": report()}])
    assert total["r"].completions == 200
    assert total["r"].first is FIRST
    assert metrics(total)["rewards/r/seconds_p95"] == 0.3
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
    budget = Budget(50)
    for _ in range(100):
        budget.check({"r": report(failures=4, first=LATER)})
    budget.check({"r": report(failures=10, first=FIRST)})
    with pytest.raises(RewardError, match="boom"):
        budget.check({"r": report(failures=10, first=FIRST)})


def test_a_broken_contract_ends_the_run_at_once():
    refused = Failure("r", "refused", "returned 1 scores for 8", "one of 8 completions")
    total = added([{"r": report(failures=1, first=LATER)}, {"r": report(failures=8, first=refused)}])
    with pytest.raises(RewardError, match="returned 1 scores"):
        Budget(1000).check(total)


def test_means_by_task():
    nan = float("nan")
    rewards = torch.tensor([[1.0, nan], [0.0, nan], [nan, 0.5], [nan, nan]])
    figures = task_means(rewards, ["box", "box", "ocr", None], ["iou", "ocr"])
    assert figures == {"rewards/iou/box": 0.5, "rewards/ocr/ocr": 0.5}
    assert task_means(rewards, ["box"] * 4, ["iou", "ocr"]) == {}
