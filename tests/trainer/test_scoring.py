"""Rewards in real runs of the host: composition, limits, and an end on all ranks together."""

import json
import time
from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.errors import RewardError, SettingsError
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.rewards.offline import command
from swift_grpo_ext.rewards.offline.files import read_rows
from swift_grpo_ext.rewards.runtime import pool
from swift_grpo_ext.watch.journal import read_completions
from tests.forked import forked_workers, run_ranks

PLUGIN = Path(__file__).with_name("hanging_reward.py")


@pytest.fixture
def train(tiny_qwen, tmp_path, monkeypatch):
    """Run GRPO in this process with these settings; returns the logged steps and the run's folder."""

    def run(dataset, settings, **overrides):
        for name, value in settings.items():
            monkeypatch.setenv(f"SWIFT_GRPO_EXT_{name}", value)
        output = tmp_path / "output"
        testing.run_in_process(
            "rlhf", testing.grpo_arguments(tiny_qwen, dataset, output, seed=1, **overrides)
        )
        return [row for row in testing.read_logging(output) if "loss" in row], testing.newest_version(output)

    return run


@pytest.fixture
def quick_workers(monkeypatch):
    monkeypatch.setattr(pool, "worker_count", lambda: 1)  # the reward counts what it is asked
    with forked_workers():
        yield


@pytest.fixture
def mixed(digits, tmp_path):
    """Grounding, choice and OCR rows in one dataset, one of them without a gold."""
    kinds = [
        {"task": "grounding", "solution": "[4, 4, 40, 40]"},
        {"task": "choice", "letter": "B"},
        {"task": "ocr", "solution": "seven 7"},
        {"task": "ocr", "solution": None},
    ]
    rows = [json.loads(line) for line in digits.train.read_text().splitlines()]
    path = tmp_path / "mixed.jsonl"
    path.write_text("".join(json.dumps({**row, **kinds[n % 4]}) + "\n" for n, row in enumerate(rows[:8])))
    return path


def test_parameters_on_the_command_line(train, mixed, capfd):
    forms = ["ext_iou:frame=norm1000,order=yxyx", "ext_iou", "ext_format"]
    steps, _ = train(mixed, {}, reward_funcs=forms, max_steps=8)  # every row once
    assert {f"rewards/{name}/mean" for name in forms} <= set().union(*steps)
    with pytest.raises(SettingsError, match=r"'norm1', .* \(got 'norm'\)"):
        train(mixed, {}, reward_funcs=["ext_iou:frame=norm"], max_steps=1)


def test_a_mixed_dataset_trains_in_one_run(train, mixed, capfd):
    table = {
        "rewards": {
            "ext_iou": {"tasks": ["grounding"]},
            "ext_choice": {"tasks": ["choice"], "gold": "letter"},
            "ext_ocr": {"tasks": ["ocr"]},
            "ext_math": {"tasks": ["choice"]},
        }
    }
    steps, folder = train(
        mixed,
        {"REWARD_TABLE": json.dumps(table)},
        log_completions=True,
        reward_funcs=["ext_iou", "ext_choice", "ext_ocr", "ext_format"],
        reward_weights=[1.0, 1.0, 1.0, 0.1],
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        max_steps=4,
    )
    assert len(steps) == 4
    assert all(step["rewards/ext_ocr/failures"] == 0 for step in steps)
    said = capfd.readouterr().err
    assert "reward 'ext_ocr' does not score a row: no gold in column solution" in said
    rows = list(read_completions(folder))
    for row in rows:  # each 0 is explained by its own line
        scores = {name: row[name] for name in ("ext_iou", "ext_choice", "ext_ocr", "ext_format")}
        assert {name for name, score in scores.items() if score == 0} <= row["reason"].keys()
        assert set(row["read"]) <= scores.keys()
    _scored_offline_like_in_the_run(folder, table)


def test_misspelt_rewards_tasks_and_columns_of_the_table_are_named_with_what_was_meant(
    train, mixed, said, capfd
):
    def run(**table):
        return train(
            mixed,
            {"REWARD_TABLE": json.dumps(table)},
            reward_funcs=["ext_iou", "ext_format"],
            per_device_train_batch_size=8,
            max_steps=1,
        )

    with pytest.raises(
        RewardError, match=r"'exf_iou' \[SWIFT_GRPO_EXT_REWARD_TABLE\] -> did you mean 'ext_iou'"
    ) as caught:
        run(rewards={"exf_iou": {"tasks": ["grounding"]}})
    assert "arguments.py" in {Path(str(entry.path)).name for entry in caught.traceback}, "before the model"
    run(rewards={"ext_iou": {"tasks": ["groundings"]}})
    line = next(line for line in said if "scores no row" in line)
    assert "'ext_iou'" in line
    assert "column 'task' holds ['choice', 'grounding', 'ocr']" in line
    run(task_column="tsk", rewards={"ext_iou": {"tasks": ["grounding"]}})
    missing = "no row has the column 'tsk' of the reward table"
    assert missing in (err := capfd.readouterr().err)
    assert "did you mean 'task'?" in err.partition(missing)[2].splitlines()[0]


def _scored_offline_like_in_the_run(folder, table):
    names = ["ext_choice", "ext_ocr", "ext_format"]
    path = folder / "completions.jsonl"
    command.run(path, names, table=json.dumps(table), output=folder)
    found = {}
    for line in (folder / "scores.jsonl").read_text().splitlines():
        record = json.loads(line)
        found.setdefault(record["reward"], {})[record["row"]] = record["score"]
    for number, row in enumerate(read_rows(path), start=1):
        for name in names:
            if row[name] is not None:
                assert found[name][number] == pytest.approx(row[name])
            else:  # the row is another reward's, or has no gold
                assert found[name].get(number) is None


def test_a_mistyped_reward_is_named_before_the_model_is_loaded(train, digits):
    match = r"no reward is called 'ext_cuont' .* did you mean 'ext_count'"
    with pytest.raises(RewardError, match=match) as caught:
        train(digits.train, {}, reward_funcs="ext_cuont", max_steps=1)
    assert "arguments.py" in {Path(str(entry.path)).name for entry in caught.traceback}


def test_completions_that_are_in_no_form_are_told_with_what_asks_for_it(train, digits, said):
    steps, _ = train(
        digits.train, {"CONSOLE": "figures"}, reward_funcs=["ext_count"], log_completions=True, max_steps=1
    )
    assert 0 <= steps[0]["unread/ext_count"] <= 1
    if steps[0]["unread/ext_count"] > 0.1:
        (line,) = [line for line in said if "reward 'ext_count': " in line]
        assert (
            "of the completions of step 1 are not in the form that it reads, such as <answer>4</answer>"
            in line
        )
        assert "--system 'Think about the question" in line


def test_a_reward_that_raises_for_all_ends_the_run_beside_one_that_scores(train, digits):
    with pytest.raises(
        RewardError, match=r"reward 'always_raising': ValueError.* of the last .* completions failed"
    ):
        train(digits.train, {}, reward_funcs=["ext_format", "always_raising"], max_steps=4, **FAULTY)


FAULTY = {"external_plugins": [plugin_file(), PLUGIN]}


def test_a_reward_that_scores_nothing_is_told_of_in_the_first_step_by_its_typed_name(train, digits, said):
    """Of a later batch that has no row for it nothing is wrong."""
    train(digits.train, {}, reward_funcs=["ext_format", "scores_first"], max_steps=2, **FAULTY)
    assert not [line for line in said if "scored none" in line]
    train(digits.train, {}, reward_funcs=["ext_format", "scores_later"], max_steps=2, **FAULTY)
    (line,) = [line for line in said if "scored none" in line]
    assert "reward 'scores_later' scored none of the 4 completions of step 1" in line


@pytest.mark.usefixtures("quick_workers")
def test_a_hung_reward_of_the_users_costs_its_limit_and_the_run_goes_on(train, digits):
    started = time.monotonic()
    options = {"reward_funcs": "hanging", "log_completions": True, **FAULTY}
    steps, folder = train(digits.train, {"REWARD_TIMEOUT": "2"}, **options)
    assert time.monotonic() - started < 200
    assert len(steps) == 2
    assert steps[0]["rewards/hanging/timeouts"] == 1
    assert steps[0]["rewards/hanging/failures"] == 1
    reasons = [row["reason"] for row in read_completions(folder) if "hanging" in row["reason"]]
    assert "no answer within 2 s" in [reason["hanging"] for reason in reasons]


@pytest.mark.usefixtures("quick_workers")
def test_without_a_budget_the_first_failure_ends_the_run(train, digits):
    with pytest.raises(
        RewardError, match=r"reward 'hanging': no answer within 2 s \[completion 1 of the batch"
    ):
        train(
            digits.train,
            {"REWARD_TIMEOUT": "2", "REWARD_FAILURES": "0"},
            reward_funcs="hanging",
            **FAULTY,
        )


@pytest.mark.two_ranks
@pytest.mark.parametrize(
    ("reward", "limit", "words"),
    [
        pytest.param(
            "hanging",
            3.0,
            "reward 'hanging': no answer within 3 s [completion 1 of the batch of rank 1, ",
            marks=pytest.mark.slow,
        ),
        ("raising", 0.0, "reward 'raising': ValueError('a fault of this rank alone') [one of 4 completions"),
    ],
)
def test_a_fault_on_one_rank_ends_both_at_once_and_names_reward_and_row(
    tiny_qwen, digits, tmp_path, reward, limit, words
):
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path,
        seed=1,
        reward_funcs=reward,
        external_plugins=[plugin_file(), PLUGIN],
    )
    settings = {"SWIFT_GRPO_EXT_REWARD_FAILURES": "0"}
    if limit:
        settings["SWIFT_GRPO_EXT_REWARD_TIMEOUT"] = str(limit)
    lines = []
    run_ranks(
        "rlhf",
        arguments,
        settings,
        timeout=280,
        check=False,
        on_line=lambda line: lines.append((time.time(), line)),
    )
    (mark,) = tmp_path.rglob("hung")
    # The launcher shows what rank 0 says: the rank that had no fault of its own.
    (ended,) = {when for when, line in lines if line.startswith("[rank0]") and words in line}
    assert ended - float(mark.read_text()) < limit + 5
    assert lines[-1][0] - ended < 20
