"""Held-out rewards with Megatron: of the same rows in each evaluation, and training is what it is without."""

import json

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.watch.held_out import read_evaluations
from tests.megatron.conftest import rows_of
from tests.megatron.runs import Order, train_all
from tests.megatron.table import OURS, PIPELINE

pytestmark = [pytest.mark.lane, pytest.mark.timeout(600)]
LAYOUTS = {"one rank": (1, {}), "data parallel": (2, {"micro_batch_size": 2}), "pipeline": (2, PIPELINE)}


@pytest.fixture(scope="module")
def seven_rows(digits, tmp_path_factory):
    """More held-out rows than a batch holds, and fewer than two."""
    return rows_of(tmp_path_factory.mktemp("held") / "rows", testing.read_jsonl(digits.train)[4:11])


# The mean is highest at step 2, whatever the answers are.
REWARD = """
from swift.rewards import orms
from swift.rewards.orm import ORM


class Peaked(ORM):
    def __call__(self, completions, trainer_state=None, **kwargs):
        height = 5 if trainer_state.global_step == 2 else 0
        return [height + len(text) % 7 / 10 for text in completions]


orms["peaked"] = Peaked
"""


@pytest.fixture(scope="module", params=LAYOUTS)
def runs(request, python, tiny, four_rows, seven_rows, tmp_path_factory):
    """A run without an evaluation, one with an evaluation in each step, and one that is best at the second."""
    ranks, layout = LAYOUTS[request.param]
    folder = tmp_path_factory.mktemp(f"runs_{ranks}")
    plain = {**layout, "external_plugins": [OURS]}
    evaluated = {**plain, "val_dataset": seven_rows, "eval_steps": 1, "save_steps": 3}
    (folder / "peaked.py").write_text(REWARD, encoding="utf-8")
    peaked = {
        **evaluated,
        "external_plugins": [OURS, folder / "peaked.py"],
        "reward_funcs": "peaked",
        "metric_for_best_model": "eval_reward",
        "save_total_limit": 2,
    }
    arguments = {"plain": plain, "evaluated": evaluated, "peaked": peaked}
    model = tiny("qwen2_5_vl")
    orders = [Order(model, four_rows, folder / name, given) for name, given in arguments.items()]
    return train_all(python, orders, ranks)


def test_training_is_what_it_is_without(runs):
    plain, evaluated, _ = runs
    assert len(evaluated.logs) == len(plain.logs) == 3
    for logs, without in zip(evaluated.logs, plain.logs, strict=True):
        figures = ("loss", "grad_norm", "reward", "kl")
        assert [logs[name] for name in figures] == [without[name] for name in figures]


def test_each_evaluation_scores_the_same_rows(runs):
    _, run, _ = runs
    evaluations = read_evaluations(run.folder)
    assert [evaluation.step for evaluation in evaluations] == [1, 2, 3]
    assert {evaluation.rows for evaluation in evaluations} == {evaluations[0].rows}
    assert evaluations[0].rows.startswith("4 of 7 validation rows (seed 42), 4 sampled answers each, ")
    scores = evaluations[0].scores["made_up"]
    assert len(scores) == 4
    assert len(set(scores)) > 1
    # Completions are made up of the row and its place in the group alone, whatever the policy is.
    assert all(evaluation.scores["made_up"] == scores for evaluation in evaluations)


def test_the_last_rank_tells_and_the_best_is_named(runs):
    first, run, _ = runs
    output = first.output  # of all runs of these processes
    assert json.loads((run.folder / "gains.json").read_text())["watching"]["held_out"]["state"] == "on"
    assert output.count("swift-grpo-ext [held-out] step 3: reward ") == 2  # of two runs
    assert f"best checkpoint: {run.folder}/checkpoint-3 (step 3, held-out reward " in output
    mean = read_evaluations(run.folder)[-1].interval().mean
    logged = [logs["eval_reward"] for logs in testing.read_logging(run.folder) if "eval_reward" in logs]
    assert logged == pytest.approx([mean] * 3, abs=1e-6)


def test_the_best_is_saved_when_it_is_found_and_kept(runs):
    """Checkpoints of step 1, the best at its time, of 2, the best, and of 3, the last: the limit is two."""
    first, _, run = runs
    assert sorted(folder.name for folder in run.folder.glob("checkpoint-*")) == [
        "checkpoint-2",
        "checkpoint-3",
    ]
    assert f"best checkpoint: {run.folder}/checkpoint-2 (step 2, held-out reward 5." in first.output
    assert (run.folder / "checkpoint-2/model.safetensors").exists()
