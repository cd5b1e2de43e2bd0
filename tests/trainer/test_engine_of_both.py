"""What an engine claims is held against what the policy computes, by the check of both trainers."""

from types import SimpleNamespace

import pytest
import torch

from swift_grpo_ext.trainer import engine_check
from swift_grpo_ext.trainer.engine_check import EngineCheck
from swift_grpo_ext.watch.guard import Guard
from swift_grpo_ext.watch.records import NUMERICS, WEIGHTS
from tests.trainer.runs import told

POLICY = torch.tensor([[-1.0, -2.0, -3.0, 0.0], [-2.0, -1.0, 0.0, 0.0]])
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])


@pytest.fixture
def said():
    """Everything that ms-swift's logger said."""
    with told() as lines:
        yield lines


@pytest.fixture
def check(monkeypatch):
    """Of a run whose ranks are one that has log-probs and one that has none."""
    monkeypatch.setattr(engine_check, "gather_object", lambda mine: [*mine, {}])
    args = {"use_vllm": True, "vllm_mode": "colocate", "bf16": False, "fp16": False}
    args |= {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0}
    host = SimpleNamespace(
        state=SimpleNamespace(global_step=0),
        args=SimpleNamespace(**args),
        model=torch.nn.Linear(1, 1),
        template=SimpleNamespace(config=SimpleNamespace(model_type="llama")),
        accelerator=SimpleNamespace(is_main_process=True),
    )
    return EngineCheck(host, Guard(), is_on=True)


def step(check, claimed, number):
    """An update whose completions the engine claims to have sampled so."""
    check._host.state.global_step = number
    check.begin()
    check.add(SimpleNamespace(rollout_per_token_logps=claimed, completion_mask=MASK), POLICY)
    return check.compare()


def test_an_engine_that_agrees(check):
    record = step(check, POLICY * MASK, 0)
    assert (record.ratio, record.mean, record.rule) == (1.0, 0.0, "")


def test_one_that_was_never_given_the_weights(check):
    record = step(check, POLICY - 0.5, 0)
    assert record.rule == WEIGHTS
    assert record.mean == pytest.approx(0.5)
    assert "vLLM colocate and trainer disagree" in record.text


def test_one_that_is_given_no_weights_any_more(check):
    assert step(check, POLICY, 0).rule == ""
    record = step(check, POLICY - 0.5, 1)
    assert record.rule == WEIGHTS
    assert "they agreed at step 0, so the engine's weights are stale" in record.text


def test_kernels_that_round(check):
    record = step(check, POLICY + 0.004, 0)
    assert record.rule == NUMERICS


def test_the_first_three_and_then_every_so_many_steps(check, monkeypatch):
    monkeypatch.setattr(engine_check, "EVERY", 10)
    compared = [number for number in range(30) if step(check, POLICY, number)]
    assert compared == [0, 1, 2, 12, 22]


def test_an_engine_without_log_probs_is_not_judged(check, said):
    assert step(check, None, 0) is None
    assert step(check, None, 1) is None
    assert [line for line in said if "log-probs" in line] == [
        "swift-grpo-ext: engine check: log-probs not compared: the engine returns none"
    ]


@pytest.mark.parametrize("filters", [{"top_p": 0.9}, {"top_k": 20}])
def test_filters_make_an_engine_surer_and_never_less_sure(check, filters):
    vars(check._host.args).update(filters)
    assert step(check, POLICY + 0.5, 0).rule == ""
    assert step(check, POLICY - 0.5, 1).rule == WEIGHTS


@pytest.mark.parametrize("other", [{"temperature": 0.0}, {"repetition_penalty": 1.05}])
def test_what_is_drawn_otherwise_is_not_compared(check, other):
    vars(check._host.args).update(other)
    assert step(check, POLICY - 0.5, 0) is None


def test_a_value_that_is_not_finite_is_a_large_distance(check):
    claimed = POLICY.clone()
    claimed[0, 1] = -torch.inf
    assert step(check, claimed, 0).largest == 20.0


def test_where_a_completion_is_first_apart(check):
    claimed = POLICY.clone()
    claimed[1, 1] -= 1.0
    record = step(check, claimed, 0)
    assert (
        "engine and trainer first differ at token 1 of turn 1 of completion 1 of a micro-batch" in record.text
    )


def test_never(check):
    check._is_on = False
    assert step(check, POLICY - 0.5, 0) is None


def of_turns(check, turns):
    """An update of one completion of two runs of tokens, whose engine gave these log-probs by turn."""
    mask = torch.tensor([[1, 1, 0, 1]])
    sample = SimpleNamespace(rollout_logprobs=turns, messages=[], images=[], videos=[], extra={})
    check._host.state.global_step += 1
    check.begin()
    batch = SimpleNamespace(rollout_per_token_logps=None, completion_mask=mask)
    check.add(batch, POLICY[:1], None, [sample])
    return check.compare()


def test_turns_are_compared_one_by_one_and_what_a_template_closes_them_with_is_not(check):
    assert of_turns(check, [[-1.0], [0.0]]).ratio == 1.0
    assert of_turns(check, [[-1.0, -2.0], [0.0, -9.0]]).ratio == 1.0, "an end that does not train"


def test_turns_that_cannot_be_told_apart_are_not_judged(check):
    assert of_turns(check, [[-5.0, -5.0, -5.0]]) is None
    assert of_turns(check, [[-5.0], [-5.0], [-5.0]]) is None
