"""What validation sets are given that are none, or half of one."""

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from datasets import Dataset
from transformers import PreTrainedModel

from swift_grpo_ext import testing
from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.evaluation import TrainerHeldOut, fit_evaluation_batch
from swift_grpo_ext.watch.checkpoints import SAVE_FAILED
from swift_grpo_ext.watch.held_out import Evaluation, read_evaluations
from swift_grpo_ext.watch.report.run import read_run
from swift_grpo_ext.watch.report.verdict import judge
from tests.trainer.runs import figures, told

RUN = {"max_steps": 1, "eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}


def arguments(batch=4, ranks=1, strategy="steps", samples=1):
    return SimpleNamespace(
        eval_strategy=strategy,
        eval_use_evalscope=False,
        per_device_eval_batch_size=batch,
        per_device_train_batch_size=6,
        world_size=ranks,
        num_generations=5,
        num_generations_eval=samples,
    )


@pytest.mark.parametrize(
    ("rows", "ranks", "batch", "fitted"),
    [(7, 1, 4, 4), (3, 1, 4, 3), (7, 4, 2, 1), (8, 4, 2, 2), (1, 1, 64, 1), (99, 4, 1, 6), (20, 4, 1, 5)],
)
def test_batches_are_those_of_training_where_none_is_given_and_no_larger_than_the_rows(
    rows, ranks, batch, fitted
):
    args = arguments(batch, ranks)
    fit_evaluation_batch([{}] * rows, args)
    assert args.per_device_eval_batch_size == fitted


@pytest.mark.parametrize(("rows", "ranks"), [(0, 1), (1, 2), (7, 8)])
def test_fewer_rows_than_ranks_are_refused_in_one_line(rows, ranks):
    with pytest.raises(RefusedError, match=f"{rows} validation rows for {ranks} ranks .*--val_dataset"):
        fit_evaluation_batch([{}] * rows, arguments(ranks=ranks))


def test_fewer_rows_than_ranks_are_evaluated_in_groups_where_ms_swift_could():
    args = arguments(batch=1, ranks=5)
    with told() as messages:
        fit_evaluation_batch([{}], args)
    assert args.num_generations_eval == 5
    assert "fewer validation rows (1) than ranks (5): 5 sampled answers to each" in messages[0]
    with pytest.raises(RefusedError):  # two groups at once need two rows
        fit_evaluation_batch([{}], arguments(batch=2, ranks=5))


@pytest.mark.parametrize("dataset", [None, []])
def test_a_run_that_does_not_evaluate_needs_no_rows(dataset):
    fit_evaluation_batch(dataset, arguments(strategy="no"))


def held_out_of(texts, answered=()):
    """Held-out rewards of a run on these rows, and what was said when it chose them and when it evaluates."""
    rows = [{"messages": [{"role": "user", "content": text}]} for text in texts]
    host = SimpleNamespace(
        args=SimpleNamespace(
            seed=42, metric_for_best_model="", greater_is_better=None, dataloader_drop_last=True
        ),
        eval_dataset=Dataset.from_list(rows),
        num_generations_eval=1,
        reward_func_names=[],
        rollout=SimpleNamespace(generations=0),
        state=SimpleNamespace(global_step=10, best_metric=0.9, best_global_step=10),
    )
    held_out = TrainerHeldOut(host, Settings())
    with told() as messages:
        held_out._begin()
        for evaluation in answered:
            held_out._history.add(evaluation)
        with held_out.evaluating():
            assert not host.args.dataloader_drop_last
    return held_out, messages


def test_a_resumed_run_with_other_rows_starts_a_new_comparison_and_says_so():
    before = Evaluation(10, {"reward": (1.0,) * 4}, rows=held_out_of("abcd")[0]._rows)
    assert before.rows.startswith("4 of 4 validation rows (seed 42), answered greedily, ")
    same, messages = held_out_of("abcd", [before])
    assert same._rows == before.rows
    assert not any("chosen anew" in text for text in messages)
    other, messages = held_out_of("abce", [before])
    assert any("the validation rows are not those of the resumed run: the best" in text for text in messages)
    assert (other._host.state.best_metric, other._host.state.best_global_step) == (None, None)
    other._history.add(Evaluation(20, {"reward": (0.5,) * 4}, rows=other._rows))
    assert other._history.best.step == 20


def test_a_full_disk_costs_a_line_of_the_report_and_not_the_run(tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("")
    held_out = TrainerHeldOut(SimpleNamespace(args=SimpleNamespace(output_dir=str(taken))), Settings())
    with told() as messages:
        held_out._write(Evaluation(10, {"reward": (1.0,)}))
    (line,) = messages
    assert "step 10 is not in the report" in line


@pytest.mark.slow
def test_a_full_disk_at_the_best_leaves_the_one_before_and_names_it(tiny_qwen, digits, tmp_path, monkeypatch):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(digits.test.read_text().splitlines(keepends=True)[:4]))
    save = PreTrainedModel.save_pretrained

    def save_once(self, folder, *args, **kwargs):
        if Path(folder).name == "checkpoint-2":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return save(self, folder, *args, **kwargs)

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", save_once)
    monkeypatch.setattr(TrainerHeldOut, "saved_if_best", lambda self, is_best: True)
    with pytest.raises(SystemExit, match=str(SAVE_FAILED)):
        figures(
            tiny_qwen,
            digits.train,
            tmp_path / "out",
            val_dataset=rows,
            save_strategy="steps",
            save_steps=1,
            save_total_limit=1,
            **{**RUN, "max_steps": 3},
        )
    version = testing.newest_version(tmp_path / "out")
    assert (version / "checkpoint-1/trainer_state.json").is_file()
    assert not (version / "checkpoint-2").exists()
    (best,) = [reason for reason in judge(read_run(version)).reasons if reason.startswith("Best held-out")]
    assert best.endswith("at step 2; no checkpoint of that step is left here, only checkpoint-1.")


@pytest.fixture
def without_gold(digits, tmp_path):
    """Writes validation rows, of which the first so many have no gold."""

    def write(count):
        rows = [json.loads(line) for line in digits.test.read_text().splitlines()[:4]]
        for row in rows[:count]:
            row["solution"] = None
        path = tmp_path / "held_out.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def test_rows_without_gold_are_counted_and_take_no_part(tiny_qwen, digits, without_gold, tmp_path):
    with told() as messages:
        figures(
            tiny_qwen,
            digits.train,
            tmp_path / "out",
            val_dataset=without_gold(2),
            reward_funcs="ext_choice",
            **RUN,
        )
    (evaluation,) = read_evaluations(testing.newest_version(tmp_path / "out"))
    assert evaluation.unscored == 2
    assert any("2 rows not scored" in text for text in messages)


@pytest.mark.slow
def test_a_reward_that_needs_a_column_of_training_costs_the_evaluation_alone(
    tiny_qwen, digits, tmp_path, capsys
):
    """Not one failure is allowed in training; in an evaluation each is counted, the first is printed."""
    rows = [json.loads(line) for line in digits.test.read_text().splitlines()[:4]]
    path = tmp_path / "held_out.jsonl"
    path.write_text(
        "".join(json.dumps({"messages": row["messages"], "images": row["images"]}) + "\n" for row in rows)
    )
    plugin = Path(__file__).with_name("needs_solution_reward.py")
    with told() as messages:
        figures(
            tiny_qwen,
            digits.train,
            tmp_path / "out",
            {"REWARD_FAILURES": "0"},
            val_dataset=path,
            reward_funcs="needs_solution",
            external_plugins=[plugin, plugin_file()],
            **{**RUN, "max_steps": 2},
        )
    assert "reward 'needs_solution': KeyError('solution')" in capsys.readouterr().err
    assert any("no row was scored under reward" in text for text in messages)
    assert len([row for row in testing.read_logging(tmp_path / "out") if "grad_norm" in row]) == 2
