"""Is what the engine claims what the policy computes? Judged from passes that are made anyway."""

from types import SimpleNamespace

import pytest
import torch

from swift_grpo_ext.megatron import engine
from swift_grpo_ext.megatron.engine import EngineCheck
from swift_grpo_ext.trainer.engine.agreement import Agreement
from swift_grpo_ext.watch.guard import Guard
from swift_grpo_ext.watch.records import NUMERICS, WEIGHTS

POLICY = torch.tensor([[-1.0, -2.0, -3.0, 0.0], [-2.0, -1.0, 0.0, 0.0]])
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])


@pytest.fixture
def check(monkeypatch):
    """Of a run whose ranks are one that has log-probs and one that has none."""
    monkeypatch.setattr(engine, "gather_object", lambda mine: [*mine, Agreement(mine[0].step)])
    host = SimpleNamespace(
        state=SimpleNamespace(global_step=0),
        args=SimpleNamespace(vllm_mode="colocate"),
        config=SimpleNamespace(params_dtype=torch.float32),
        accelerator=SimpleNamespace(is_main_process=True),
    )
    return EngineCheck(host, Guard(), every=10)


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


def test_the_first_three_and_then_every_so_many_steps(check):
    compared = [number for number in range(30) if step(check, POLICY, number)]
    assert compared == [0, 1, 2, 12, 22]


def test_an_engine_without_log_probs_is_not_judged(check, said):
    assert step(check, None, 0) is None
    assert step(check, None, 1) is None
    assert [line for line in said if "engine check" in line] == [
        "swift-grpo-ext: engine check: log-probs not compared: the engine returns none"
    ]


def test_never(check):
    check._every = 0
    assert step(check, POLICY - 0.5, 0) is None
