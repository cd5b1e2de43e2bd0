"""What watches fails on one of two ranks: both go on, for neither waits for what the other does no more."""

from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from tests.forked import run_ranks
from tests.trainer.runs import REWARD

HERE = Path(__file__).parent
RUN = {"beta": 0, "max_steps": 2, "reward_funcs": "even_characters"}
EVALUATED = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 2}
SLOW = pytest.mark.slow


def train(model, digits, output, variables, **options):
    """The steps that two ranks logged, and what they said."""
    arguments = testing.grpo_arguments(
        model,
        digits.train,
        output,
        **{**RUN, **options},
        external_plugins=[HERE / "faulty_watching.py", REWARD, plugin_file()],
    )
    variables = {f"SWIFT_GRPO_EXT_{name}": value for name, value in variables.items()}
    result = run_ranks("rlhf", arguments, env=variables, timeout=200)
    return [row for row in testing.read_logging(output) if "grad_norm" in row], result.tail


def struck(part, monkeypatch):
    monkeypatch.setenv("STRUCK", part)


@pytest.mark.two_ranks
@pytest.mark.parametrize(
    "part", ["monitors", pytest.param("all", marks=SLOW), pytest.param("set-up of the monitors", marks=SLOW)]
)
def test_both_ranks_go_on_where_one_cannot_watch(part, tiny_qwen, digits, tmp_path, monkeypatch):
    struck(part, monkeypatch)
    steps, said = train(tiny_qwen, digits, tmp_path, {})
    assert len(steps) == 2
    assert "monitors turned off, training is not affected: " in said
    assert "ValueError: injected on rank 1" in said


@SLOW
@pytest.mark.two_ranks
@pytest.mark.parametrize(("part", "steps"), [("held-out rewards", 2), ("", 1)], ids=["fails", "disagrees"])
def test_no_rank_stops_alone(part, steps, tiny_qwen, digits, tmp_path, monkeypatch):
    """Where the other cannot judge, neither does; where it judges otherwise, both stop."""
    monkeypatch.setenv("FALL", "")
    struck(part, monkeypatch)
    evaluated = {**EVALUATED, "val_dataset": digits.test}
    logged, said = train(tiny_qwen, digits, tmp_path, {}, **evaluated)
    assert len(logged) == steps
    off = "held-out rewards turned off, training is not affected: rank 1: ValueError: injected"
    assert (off in said) == bool(part)
    assert ("saving and stopping at step 1: fallen" in said) == (not part)
