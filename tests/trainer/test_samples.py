"""A completion that is nothing but <|endoftext|> trains like any other."""

import pytest
from swift.infer_engine import TransformersEngine
from swift.rollout.multi_turn import multi_turns

from swift_grpo_ext import testing
from swift_grpo_ext.trainer.samples import fill_empty
from tests.trainer.crops import Crops


class Sample:
    def __init__(self, ids, content="", masks=()):
        self.response_token_ids = ids
        self.response_loss_mask = list(masks)
        self.rollout_logprobs = [[-1.0]]
        self.messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": content}]


@pytest.mark.parametrize(
    ("ids", "content", "masks", "filled"),
    [
        ([], "", (), [0]),
        ([], "<think>\n\n</think>\n\n", (), [0]),
        ([5, 6], "ab", (), [5, 6]),
        ([[5], []], "", ([1], []), [[5], [0]]),
        ([[], [5]], "b", ([], [1]), [[0], [5]]),
        ([[5], [6]], "b", ([1], [1]), [[5], [6]]),
    ],
)
def test_fill_empty(ids, content, masks, filled):
    sample = Sample(ids, content, masks)
    fill_empty(sample, 0)
    assert sample.response_token_ids == filled
    assert sample.rollout_logprobs == ([] if filled != ids else [[-1.0]])
    assert [len(mask) for mask in sample.response_loss_mask] == [1] * len(masks)


@pytest.mark.parametrize(("content", "filled"), [("text of an engine without ids", []), ("", [0])])
def test_text_without_ids_is_a_completion(content, filled):
    sample = Sample([], content)
    fill_empty(sample, 0, has_ids=False)
    assert sample.response_token_ids == filled


@pytest.fixture
def one_is_empty(monkeypatch):
    """The first answer of each batch that transformers' engine gives is empty."""
    infer = TransformersEngine._infer_full

    def with_an_empty_one(self, *args, **kwargs):
        responses = infer(self, *args, **kwargs)
        choice = responses[0].choices[0]
        choice.token_ids, choice.message.content = [], ""
        return responses

    monkeypatch.setattr(TransformersEngine, "_infer_full", with_an_empty_one)


@pytest.mark.slow
@pytest.mark.usefixtures("one_is_empty")
def test_a_run_with_empty_turns_of_a_template_that_thinks(digits, tmp_path, monkeypatch):
    monkeypatch.setitem(multi_turns, "crops", Crops)
    model = testing.tiny_checkpoint("qwen3_5", tmp_path / "model")
    turns = {"multi_turn_scheduler": "crops", "max_turns": 3, "max_length": 1024}
    arguments = testing.grpo_arguments(
        model, digits.train, tmp_path / "run", reward_funcs="ext_choice", **turns
    )
    testing.run_in_process("rlhf", arguments)
    assert len([record for record in testing.read_logging(tmp_path / "run") if "loss" in record]) == 2


@pytest.mark.usefixtures("one_is_empty")
def test_a_run_with_empty_completions(tiny_qwen, digits, tmp_path):
    """Without the mixin this run ends with "Size does not match at dimension 1"."""
    arguments = testing.grpo_arguments(tiny_qwen, digits.train, tmp_path, reward_funcs="ext_choice")
    testing.run_in_process("rlhf", arguments)
    steps = [record for record in testing.read_logging(tmp_path) if "completions/min_length" in record]
    assert [step["completions/min_length"] for step in steps] == [1.0, 1.0]
    assert "" in {row["completion"] for row in testing.read_completions(tmp_path)}
