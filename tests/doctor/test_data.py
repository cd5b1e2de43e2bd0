"""Datasets of every form, read as the host reads them, and rewards on their rows."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from swift_grpo_ext.doctor.check import command, inputs
from swift_grpo_ext.findings import Severity
from swift_grpo_ext.plugin_files import plugin_file

ROWS = [{"query": f"<image>What is {n}?", "images": ["red.png"], "solution": str(n)} for n in range(12)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (56, 56)).save(tmp_path / "red.png")
    return tmp_path


@pytest.fixture
def found_in():
    """Rules that find something, by severity above a note, in a run with these arguments."""

    def find(dataset, *more, reward="accuracy", plugins=(), environ=None, rows=8):
        names = dataset if isinstance(dataset, list) else [dataset]
        words = ["--rlhf_type", "grpo", "--model", "Qwen/Qwen2.5-VL-3B-Instruct", "--torch_dtype", "bfloat16"]
        words += [
            "--dataset",
            *map(str, names),
            "--reward_funcs",
            *reward.split(),
            "--learning_rate",
            "1e-5",
        ]
        words += ["--external_plugins", str(plugin_file()), *map(str, plugins)]
        words += ["--gradient_accumulation_steps", "8", *more]
        found = command.findings_of(replace(inputs.run_of(words, environ=environ or {}), row_limit=rows))
        return {one.rule: one for one in found if one.severity is not Severity.NOTE}

    return find


def written(path, rows):
    text = json.dumps(rows) if path.suffix == ".json" else "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(text)
    return path


def as_parquet(path):
    from datasets import Dataset

    Dataset.from_list(ROWS).to_parquet(str(path))
    return path


def as_folder(path):
    path.mkdir()
    written(path / "train.jsonl", ROWS)
    return path


def as_csv(path):
    lines = ["query,images,solution"] + [f"{row['query']},red.png,x={row['solution']}" for row in ROWS]
    path.write_text("\n".join(lines) + "\n")
    return path


FORMS = {
    "rows.jsonl": lambda path: written(path, ROWS),
    "rows.json": lambda path: written(path, ROWS),
    "rows.csv": as_csv,
    "rows.parquet": as_parquet,
    "rows": as_folder,
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("drawn", ["", "#100"])
def test_sound_data_of_every_form_passes(folder, found_in, name, drawn):
    FORMS[name](folder / name)
    assert found_in(f"{name}{drawn}") == {}


@pytest.mark.parametrize("name", FORMS)
def test_a_missing_image_is_found_in_every_form(folder, found_in, name):
    FORMS[name](folder / name)
    (folder / "red.png").unlink()
    assert "red.png not found" in found_in(name)["row-image"].what


def test_a_broken_row_that_the_trainer_replaces_is_a_warning_with_the_share_of_such_rows(folder, found_in):
    data = written(folder / "rows.jsonl", [*ROWS[:7], {**ROWS[7], "images": ["gone.png"]}])
    replaced = found_in(data)["row-image"]
    assert replaced.severity is Severity.WARNING
    assert "1 of 8 rows, which the trainer replaces" in replaced.what
    for environ in ({"SWIFT_GRPO_EXT_DISABLE": "trainer"}, {"SWIFT_GRPO_EXT_BAD_ROW": "raise"}):
        assert found_in(data, environ=environ)["row-image"].severity is Severity.ERROR
    written(folder / "rows.jsonl", [{**row, "images": ["gone.png"]} for row in ROWS])
    assert found_in(data)["row-image"].severity is Severity.ERROR


def test_a_broken_row_is_found_where_the_rest_of_the_command_may_hold_the_plugin(folder, monkeypatch):
    """Whether the trainer replaces the row is not known: a warning, and an error where no row is left."""
    command_line = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct --dataset rows.jsonl"
    Path("train.sh").write_text(f'{command_line} --reward_funcs accuracy "$@"\n')
    gone = [{**row, "images": ["gone.png"]} for row in ROWS]
    for rows, severity in (([*ROWS[:7], gone[7]], Severity.WARNING), (gone, Severity.ERROR)):
        written(folder / "rows.jsonl", rows)
        found = command.verdict_of(["train.sh"]).findings
        assert [one.severity for one in found if one.rule == "row-image"] == [severity]


def test_a_file_url_is_a_path(folder, found_in):
    written(folder / "rows.jsonl", [{**row, "images": [(folder / "red.png").as_uri()]} for row in ROWS])
    assert found_in("rows.jsonl") == {}
    (folder / "red.png").unlink()
    assert "red.png not found" in found_in("rows.jsonl")["row-image"].what


def test_every_dataset_is_looked_at(folder, found_in):
    written(folder / "a.jsonl", ROWS)
    written(folder / "b.jsonl", [{**ROWS[0], "images": ["gone.png"]}])
    assert "row-image" in found_in(["a.jsonl", "b.jsonl#5"])
    assert "row-image" in found_in("a.jsonl", "--val_dataset", "b.jsonl", "--per_device_eval_batch_size", "8")
    assert found_in("a.jsonl", "--split_dataset_ratio", "0.1", "--per_device_eval_batch_size", "8") == {}


def test_images_beside_the_dataset_are_not_found_by_the_host(folder, found_in):
    data = folder / "data"
    data.mkdir()
    (folder / "red.png").rename(data / "red.png")
    written(data / "rows.jsonl", ROWS)
    assert f"ROOT_IMAGE_DIR={data}" in found_in("data/rows.jsonl")["row-image"].fix
    assert found_in("data/rows.jsonl", environ={"ROOT_IMAGE_DIR": str(data)}) == {}
    assert found_in("data/rows.jsonl", environ={"ROOT_IMAGE_DIR": "data"}) == {}


def test_columns_are_those_that_the_host_leaves(folder, found_in):
    rows = [{"question": f"What is {n}?", "answer": str(n)} for n in range(8)]
    written(folder / "rows.jsonl", rows)
    assert "solution" in found_in("rows.jsonl")["reward-column"].what
    assert found_in("rows.jsonl", "--columns", '{"answer": "solution"}') == {}


def test_only_the_first_rows_are_read(folder, found_in):
    rows = [{"query": f"What is {n}?", "solution": str(n)} for n in range(20_000)]
    written(folder / "rows.jsonl", rows)
    found_in("rows.jsonl")
    started = time.monotonic()
    assert found_in("rows.jsonl") == {}
    assert time.monotonic() - started < 60


@pytest.fixture
def plugin(folder):
    written(folder / "rows.jsonl", ROWS)
    path = folder / "mine.py"
    path.write_text("from swift.rewards import ORM, orms\n")
    return path


def test_rows_that_code_of_the_user_loads_are_not_judged(plugin, folder, found_in):
    written(folder / "raw.jsonl", [{"stem": "What is 1 + 1?", "key": "2"}] * 3)
    assert "dataset-empty" in found_in("raw.jsonl", plugins=[plugin])
    assert found_in("raw.jsonl", "--custom_register_path", "mine.py") == {}
    plugin.write_text("from swift.dataset import DatasetMeta, register_dataset\n")
    assert found_in("raw.jsonl", plugins=[plugin]) == {}


@pytest.mark.parametrize("name", ["ext_cuont", "acuracy"])
def test_a_name_that_nobody_registers_is_one_fault(folder, found_in, name):
    found = found_in("rows.jsonl", reward=name)
    assert name in found["unknown-reward"].what


def test_words_that_the_script_does_not_say_leave_rows_and_rewards_checked(tmp_path, monkeypatch):
    """A wrapper ends with "$@": its data set and its rewards are looked at all the same."""
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text('{"query": "<image>How many?"}\n')
    Path("train.sh").write_text(
        "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct --dataset rows.jsonl "
        '--reward_funcs ext_count --external_plugins "$(swift-grpo-ext path)" $EXTRA "$@"\n'
    )
    verdict = command.verdict_of(["train.sh"])
    assert {"row-tags", "reward-column"} <= {one.rule for one in verdict.findings}
    assert "options in $EXTRA $@" in verdict.closing


def test_rows_for_evaluation_need_the_gold_too(folder, found_in):
    written(folder / "rows.jsonl", ROWS)
    rows = [{name: value for name, value in row.items() if name != "solution"} for row in ROWS]
    written(folder / "held_out.jsonl", rows)
    found = found_in("rows.jsonl", "--val_dataset", "held_out.jsonl", "--eval_strategy", "steps")[
        "reward-column"
    ]
    assert (found.where, "solution" in found.what) == ("--val_dataset held_out.jsonl", True)
    assert found_in("rows.jsonl", "--val_dataset", "held_out.jsonl", "--eval_strategy", "no") == {}


def test_the_gold_column_of_the_reward_table_is_the_one_that_rows_need(folder, found_in):
    rows = [{"shapes" if name == "solution" else name: value for name, value in row.items()} for row in ROWS]
    written(folder / "rows.jsonl", rows)
    table = json.dumps({"rewards": {"ext_count": {"gold": "shapes"}}})
    Path("table.json").write_text(table)

    def found(value):
        environ = {"SWIFT_GRPO_EXT_REWARD_TABLE": value} if value else {}
        return found_in("rows.jsonl", reward="ext_count", environ=environ).get("reward-column")

    assert found("").what.startswith("ext_count needs the column solution or")
    assert found("table.json") is None
    assert found(table) is None
    assert "needs the column shape, which the rows lack" in found(table.replace("shapes", "shape")).what


def test_a_plugin_is_not_run_and_its_rewards_are_named(folder):
    written(folder / "rows.jsonl", ROWS)
    Path("mine.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    words = ["--rlhf_type", "grpo", "--model", "Qwen/Qwen2.5-VL-3B-Instruct", "--dataset", "rows.jsonl"]
    words += ["--reward_funcs", "own", "--external_plugins", "mine.py"]
    verdict = command.verdict_of(words)
    assert "own of your plugin, which `score` calls" in verdict.closing
    assert "unknown-reward" not in {one.rule for one in verdict.findings}
    assert not Path("ran").exists()


def test_a_form_that_nobody_asks_for_is_said(folder, found_in):
    written(folder / "rows.jsonl", ROWS)
    found = found_in("rows.jsonl", reward="ext_count")["reward-form-not-asked"]
    assert "<answer>" in found.what
    assert "reward-form-not-asked" not in found_in(
        "rows.jsonl", "--system", "Write <answer>4</answer>.", reward="ext_count"
    )


def test_rows_are_looked_for_where_the_script_goes(folder):
    (folder / "data").mkdir()
    written(folder / "data/rows.jsonl", [{"query": "What is 2?"}])
    words = (
        "--rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct --dataset rows.jsonl --reward_funcs accuracy"
    )
    Path("data/train.sh").write_text(f'cd "$(dirname "$0")"\nswift rlhf {words}\n')
    assert "reward-column" in {one.rule for one in command.verdict_of(["data/train.sh"]).findings}


def test_images_that_a_program_of_the_script_may_write_are_not_missed(folder):
    written(folder / "rows.jsonl", [{**row, "images": ["gone.png"]} for row in ROWS])
    words = (
        "--rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct --dataset rows.jsonl --reward_funcs accuracy"
    )
    for before, is_found in (("mkdir -p images", True), ("python fetch_images.py", False)):
        Path("train.sh").write_text(f"{before}\nswift rlhf {words}\n")
        found = {one.rule for one in command.verdict_of(["train.sh"]).findings}
        assert ("row-image" in found) == is_found, before
