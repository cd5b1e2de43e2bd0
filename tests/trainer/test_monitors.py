"""What the monitors are told of a rollout."""

from types import SimpleNamespace

import torch

from swift_grpo_ext.rewards.runtime.ledger import Report
from swift_grpo_ext.trainer.monitors import Monitors
from swift_grpo_ext.watch.guard import Guard


def test_a_reward_whose_rows_are_none_of_the_batch_has_left_nothing_unscored():
    scores = torch.tensor([[torch.nan, 1.0]] * 4)
    counts = {"ext_iou": Report(), "colour": Report(completions=4, scored=4)}
    names = {"reward_func_names": ["ext_iou", "colour"]}
    scoring = SimpleNamespace(counts=counts)
    monitors = Monitors(SimpleNamespace(guard=Guard(), scoring=scoring, **names))
    (facts,) = monitors._reward_facts(scores, 2, [])
    assert (facts.name, facts.scored) == ("colour", 1)
    counts["colour"] = Report()
    assert [facts.scored for facts in monitors._reward_facts(scores * torch.nan, 2, [])] == [0, 0], (
        "a batch of rows that no reward is for is not scored at all"
    )


def test_the_example_of_what_was_not_read_is_not_the_reason_of_a_wrong_answer():
    scores = torch.zeros(4, 1)
    counts = {"ext_count": Report(completions=4, scored=4, unread=2, example="unread: 'no' is no count")}
    scoring = SimpleNamespace(counts=counts)
    host = SimpleNamespace(guard=Guard(), scoring=scoring, reward_func_names=["ext_count"])
    wrong = SimpleNamespace(reason={"ext_count": "gold: 4"})
    (facts,) = Monitors(host)._reward_facts(scores, 2, [wrong])
    assert (facts.unread, facts.reason) == (0.5, "unread: 'no' is no count")
