import re
import sys
import time
from types import SimpleNamespace

import pytest

from swift_grpo_ext import get_reward
from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.runtime import scored as scored_module
from swift_grpo_ext.rewards.runtime.ledger import drain
from swift_grpo_ext.rewards.runtime.of_catalogue import OfCatalogue
from swift_grpo_ext.rewards.runtime.rules import RewardRule, RewardTable
from swift_grpo_ext.rewards.runtime.scored import AwaitedScored, Scored
from tests.rewards import jobs


def test_a_reward_with_a_limit_of_its_own():
    reward = Scored(jobs.Limited(), "Hangs", limit=60.0)
    started = time.monotonic()
    assert reward(["abc", "hang", "raise", "exit", "de"], solution=[1] * 5) == [3.0, None, None, None, 2.0]
    assert time.monotonic() - started < 30
    report = drain("Hangs")
    assert (report.completions, report.failures, report.timeouts) == (5, 3, 1)
    assert [outcome.reason for outcome in reward.outcomes[1:4]] == [
        "no answer within 2 s",
        "ValueError(3)",
        "the child process ended with 3",
    ]
    reward.pool.close()


def test_a_reward_over_the_whole_batch_stays_one():
    reward = Scored(jobs.Whole(), "Whole", limit=2.0)
    assert reward(["a", "bb", "cccc"]) == [0.25, 0.5, 1.0]
    assert reward(["hang", "bb"]) == [None, None]
    reward.pool.close()


def test_functions_columns_and_the_trainers_state():
    state = SimpleNamespace(global_step=10, log_history=[1, 2, 3])
    reward = Scored(jobs.needs_columns, "needs_columns", limit=5.0)
    assert reward(["a", "b"], solution=["a", "x"], trainer_state=state) == [11.0, 10.0]
    assert state.log_history == [1, 2, 3]
    reward.pool.close()


def test_a_surplus_score_does_not_go_to_the_next_completion():
    reward = Scored(jobs.uneven, "uneven", limit=5.0)
    assert reward(["two", "none", "x"]) == [None, None, 0.5]
    report = drain("uneven")
    assert report.first.kind == "refused"
    assert re.match("reward 'uneven' returned (2|0) scores for 1 completions", report.first.what)
    reward.pool.close()


def test_a_limit_is_above_zero():
    with pytest.raises(RewardError, match=r"a time limit of -1 s \[uneven\]"):
        Scored(jobs.uneven, "uneven", limit=-1)


def test_what_cannot_be_sent_to_a_child_is_refused():
    class Local(jobs.Hangs):
        pass

    for reward in (Local(), lambda completions, **columns: [1.0]):
        with pytest.raises(RewardError, match="cannot be sent to a child process"):
            Scored(reward, "local", limit=1.0)


def test_a_guarded_reward_always_returns_one_score_per_completion():
    for function, failures, kind in (
        (lambda completions, **columns: [1.0], 3, "refused"),
        (lambda completions, **columns: 1.0, 3, "refused"),
        (lambda completions, **columns: ["a"] * 3, 3, "refused"),
        (lambda completions, missing, **columns: [1.0] * 3, 3, "error"),
        (lambda completions, **columns: 1 / 0, 3, "error"),
        (lambda completions, **columns: [1, None, float("inf")], 0, None),
    ):
        drain("f")
        scores = Scored(function, "f")(["a", "b", "c"], solution=[1, 2, 3])
        report = drain("f")
        assert len(scores) == 3
        assert report.failures == failures
        assert (report.first.kind if report.first else None) == kind
    assert scores == [1.0, None, None]


def test_a_reward_that_ends_the_program_has_failed(capsys):
    scored = Scored(lambda completions, **columns: sys.exit(3), "leaves")
    assert scored(["a"]) == [None]
    assert drain("leaves").failures == 1
    assert "reward 'leaves': SystemExit(3)" in capsys.readouterr().err


def test_scores_that_are_not_finite_are_not_scored_counted_and_told_once(capsys):
    def endless(completions, **columns):
        return [1.0, float("inf"), float("nan")]

    for _ in range(2):
        assert Scored(endless, "endless")(["a", "b", "c"]) == [1.0, None, None]
    assert drain("endless").unscored == {"the score is NaN or infinite": 4}
    (line,) = capsys.readouterr().err.splitlines()
    assert "'endless' does not score a row: the score is NaN or infinite [completion 1 of the batch" in line


def test_rows_that_cannot_be_scored_for_one_reason_are_told_of_once_whatever_their_numbers(capsys):
    scored = OfCatalogue(get_reward("ext_iou"), table=RewardTable())
    golds = [[44, 3, 78], [5, 6, 7], [8, 9, 10]]
    assert scored(["[1, 2, 3, 4]"] * 3, solution=golds) == [None] * 3
    assert capsys.readouterr().err.count("does not score a row: gold '[") == 1
    ((kind, rows),) = drain("ext_iou").unscored.items()
    assert kind.startswith("gold # is no box")
    assert rows == 3
    count = OfCatalogue(get_reward("ext_count"), table=RewardTable())
    count(["4"] * 2, solution=["many", "few"])
    (told,) = capsys.readouterr().err.splitlines()
    assert "'ext_count' does not score a row: gold 'many'" in told
    (kind,) = drain("ext_count").unscored
    assert kind.startswith("gold # ")


def test_an_async_reward_has_a_limit_too():
    import asyncio

    async def slow(completions, **columns):
        await asyncio.sleep(60)

    async def blocks(completions, **columns):
        time.sleep(60)

    for function in (slow, blocks):
        drain("slow")
        started = time.monotonic()
        assert asyncio.run(AwaitedScored(function, "slow", limit=0.2)(["a"])) == [None]
        assert time.monotonic() - started < 50
        report = drain("slow")
        assert report.first.what == "no answer within 0.2 s"
        assert (report.first.kind, report.timeouts, report.failures) == ("timeout", 1, 1)


def test_an_async_reward_with_a_limit_gives_its_scores_and_its_errors():
    import asyncio

    async def lengths(completions, **columns):
        await asyncio.sleep(0)
        return [float(len(text) // len(text)) for text in completions]

    limited = AwaitedScored(lengths, "lengths", limit=5.0)
    assert asyncio.run(limited(["a", "bb"])) == [1.0, 1.0]
    assert asyncio.run(limited([""])) == [None]
    assert "ZeroDivisionError" in drain("lengths").first.what


def test_the_first_failure_is_printed_when_it_happens_and_the_next_are_counted(capsys):
    def broken(completions, **columns):
        raise KeyError("boxes\nof the row")

    guard = Scored(broken, "broken")
    for _ in range(3):
        guard(["a", "b"], images=[["cat.png"], ["dog.png"]])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("swift-grpo-ext: reward 'broken': KeyError('boxes")
    assert "the first is completion 0 of the batch, image 'cat.png'" in line
    assert line.endswith("; further failures are counted")
    assert drain("broken").failures == 6


def test_the_first_kill_is_told_at_once_and_after_three_the_batch_is_not_asked(capfd, monkeypatch):
    reward = Scored(jobs.Hangs(), "Hangs", limit=1.0)
    reward(["warm"])
    drain("Hangs")
    told = []
    monkeypatch.setattr(scored_module, "announce", lambda failure: told.append(time.monotonic()))
    started = time.monotonic()
    scores = reward(["abc", *["hang"] * 20, "de"])
    assert scores[0] == 3.0
    assert set(scores[1:-1]) == {None}
    assert time.monotonic() - started < 15, "20 times the limit"
    assert told[0] - started < 4, "when the first is killed"
    report = drain("Hangs")
    assert 3 <= report.timeouts < 3 + reward.pool._job.workers
    assert report.failures == report.timeouts, "who was not asked did not fail"
    assert "not asked, since" in reward.outcomes[-2].reason
    reward.pool.close()


def test_every_score_has_its_outcome():
    scored = Scored(lambda completions, **columns: [1, 0, None, float("nan")], "own")
    scored(list("abcd"))
    assert [(outcome.score, outcome.reason) for outcome in scored.outcomes] == [
        (1.0, ""),
        (0.0, ""),
        (None, ""),
        (None, "the score is NaN or infinite"),
    ]


def test_a_rule_of_the_table_routes_rows_and_names_the_gold_of_own_rewards():
    rule = RewardRule(tasks=["chart"], gold="height")
    seen = []

    def own(completions, solution, **columns):
        seen.append((completions, solution))
        return [1.0] * len(completions)

    scored = Scored(own, "own")
    scored.follow(RewardTable(rewards={"own": rule}), "own")
    assert scored(["a", "b", "c"], task=["chart", "box", "chart"], height=[1, 2, 3]) == [1.0, None, 1.0]
    assert seen == [(["a", "c"], [1, 3])]
    assert scored(["a"], task=["box"], height=[1]) == [None]
    assert len(seen) == 1
