"""Every example is what it says: bash starts it, `check` finds what its head promises, the small ones train."""

import ast
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from PIL import Image

from examples.from_vlm_r1 import convert
from examples.from_vlm_r1.convert import RowError, converted
from examples.tasks import make_data
from swift_grpo_ext import testing
from swift_grpo_ext.doctor.check import command, inputs
from swift_grpo_ext.rewards.catalogue import get_reward
from swift_grpo_ext.rewards.gold.columns import gold_completion
from swift_grpo_ext.rewards.runtime.rules import load_table
from tests.examples.scripts import EXAMPLES, RLHF_SCRIPTS, SCRIPTS, findings_in_head, name_of, start

TASKS = [EXAMPLES / "tasks" / f"{name}.sh" for name in ("grounding", "gui", "ocr", "counting", "mixed")]
WITH_DATA = [*TASKS, EXAMPLES / "from_vlm_r1" / "grounding.sh"]
# Options that a CPU run of a tiny model cannot take; everything else of a script is kept.
OF_GPUS = re.compile(r"--(deepspeed|vllm_\w+|sleep_level|offload_\w+|move_model_batches|num_train_epochs)$")


@pytest.mark.parametrize("path", RLHF_SCRIPTS, ids=name_of)
def test_check_finds_what_the_head_promises(path):
    found = command.findings_of(replace(inputs.runs_of_script(path)[0], gpu_memory=80))
    assert {(finding.severity.value, finding.rule) for finding in found} == findings_in_head(path)


def test_the_readmes_link_every_script():
    link = re.compile(r"\]\(([^)]+\.sh)\)")
    linked = {
        file.parent / to for file in EXAMPLES.rglob("README.md") for to in link.findall(file.read_text())
    }
    assert linked == set(SCRIPTS)


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_bash_starts_it_from_any_folder(path, tmp_path):
    variables = {"OUTPUT": str(tmp_path / "run"), "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1"}
    started = start(path, tmp_path, **variables)
    assert "rlhf" in started
    assert os.access(path, os.X_OK)


@pytest.mark.parametrize("path", RLHF_SCRIPTS, ids=name_of)
def test_own_data_and_output_are_taken(path, tmp_path):
    given = {"DATA": "/my/rows.jsonl", "VAL_DATA": "/my/held.jsonl", "IMAGES": "/my/images"}
    run = start(path, tmp_path, **given, OUTPUT="/my/output")["rlhf"]
    assert run.value("--dataset") == "/my/rows.jsonl"
    assert run.variables["ROOT_IMAGE_DIR"] == "/my/images"
    assert run.value("--output_dir") == "/my/output"


EVALUATING = [path for path in RLHF_SCRIPTS if "--val_dataset " in path.read_text().partition("set -")[2]]


@pytest.mark.parametrize("path", EVALUATING, ids=name_of)
def test_none_evaluates_on_rows_that_it_trains_on(path, tmp_path):
    run = start(path, tmp_path)["rlhf"]
    read = testing.read_jsonl
    rows, held_out = (read(path.parent / run.value(name)) for name in ("--dataset", "--val_dataset"))
    assert not {row["images"][0] for row in rows} & {row["images"][0] for row in held_out}
    with pytest.raises(subprocess.CalledProcessError):
        start(path, tmp_path, DATA="/my/rows.jsonl")


def test_the_sample_data_are_what_their_script_makes_and_small(tmp_path):
    make_data.make(tmp_path)
    data = EXAMPLES / "tasks" / "data"
    for path in tmp_path.rglob("*.jsonl"):
        assert (data / path.name).read_text() == path.read_text()
    assert {path.name for path in data.rglob("*.png")} == {path.name for path in tmp_path.rglob("*.png")}
    assert sum(path.stat().st_size for path in data.rglob("*.*")) < 200_000


@pytest.mark.parametrize("path", WITH_DATA, ids=name_of)
def test_gold_gets_the_maximum_of_every_reward(path, tmp_path, monkeypatch):
    monkeypatch.chdir(path.parent)
    run = start(path, tmp_path)["rlhf"]
    table = load_table(run.variables.get("SWIFT_GRPO_EXT_REWARD_TABLE", ""))
    assert len(run.values("--reward_weights") if "--reward_weights" in run.words else []) in (
        0,
        len(run.values("--reward_funcs")),
    )
    for name in run.values("--reward_funcs"):
        reward, rule = get_reward(name), table.rule(name)
        read = testing.read_jsonl(path.parent / run.value("--dataset"))
        rows = [row for row in read if not rule.tasks or row["task"] in rule.tasks]
        assert rows
        folder = (path.parent / run.value("--dataset")).parent
        for row in rows:
            # As if the processor had doubled the image, so that a frame left out shows.
            wide, high = Image.open(folder / row["images"][0]).size
            row["image_sizes"] = [{"original": [wide, high], "resized": [2 * wide, 2 * high]}]
            text = (
                gold_completion(reward, row, **rule.parameters)
                if reward.gold
                else "<think>\n-\n</think>\n<answer>1</answer>"
            )
            assert reward(text, row, **rule.parameters) == reward.high, (name, row)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[] if path.stem == "mixed" or "vlm" in str(path) else pytest.mark.slow)
        for path in WITH_DATA
    ],
    ids=name_of,
)
def test_two_steps_of_grpo_on_a_tiny_model(path, tiny_qwen, tmp_path, monkeypatch):
    monkeypatch.chdir(path.parent)
    run = start(path, tmp_path)["rlhf"]
    cpu = testing.grpo_arguments(
        tiny_qwen,
        run.value("--dataset"),
        tmp_path / "run",
        tuner_type=run.value("--tuner_type"),
        num_generations=2,
        per_device_train_batch_size=8,
    )
    words = [*without_gpus(run.words), *cpu]
    ours = {
        name: value for name, value in run.variables.items() if name.startswith(("SWIFT_", "ROOT_", "MAX_"))
    }
    testing.run_in_process("rlhf", words, ours)
    steps = [row for row in testing.read_logging(tmp_path / "run") if "loss" in row]
    assert len(steps) == 2
    for name in run.values("--reward_funcs"):
        assert any(f"rewards/{name}/mean" in step for step in steps), name


def without_gpus(words):
    kept, dropping = [], False
    for word in words:
        dropping = bool(OF_GPUS.match(word)) if word.startswith("--") else dropping
        kept += [] if dropping else [word]
    return kept


def test_the_ray_configuration_has_only_keys_that_the_host_knows(tmp_path):
    start(EXAMPLES / "multi_node" / "ray_megatron.sh", tmp_path, OUTPUT=str(tmp_path / "run"))
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    groups = [config.pop("train"), config.pop("rollout")]
    assert all(group.pop("gpus") == 8 for group in groups)
    assert config.pop("nnodes") == 1
    known = host_argument_names()
    assert {name for table in (config, *groups) for name in table} <= known
    assert all(
        Path(file).is_file() for file in (*config["external_plugins"], *config["dataset"], config["system"])
    )
    train = groups[0]
    ranks = 8 // train["tensor_model_parallel_size"]
    assert train["global_batch_size"] % (config["num_generations"] * ranks) == 0
    assert train["global_batch_size"] % (train["micro_batch_size"] * ranks) == 0


def host_argument_names():
    """Fields of the argument classes of the Megatron engine, which cannot be imported without megatron-core."""
    import swift

    folder = Path(swift.__file__).parent
    files = [*folder.glob("megatron/arguments/*.py"), *folder.glob("arguments/base_args/*.py")]
    files += [folder / "rlhf_trainers" / "args_mixin.py"]
    names = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
    return names


def test_the_ray_entry_of_the_host_is_where_we_say():
    import swift

    folder = Path(swift.__file__).parent
    assert "swift.ray.megatron.pipeline" in (folder / "cli" / "_megatron" / "rlhf.py").read_text()
    assert "try_init_ray" not in (folder / "cli" / "rlhf.py").read_text()


def test_rows_of_vlm_r1_are_converted():
    folder = EXAMPLES / "from_vlm_r1"
    theirs, ours = testing.read_jsonl(folder / "vlm_r1.jsonl"), testing.read_jsonl(folder / "rows.jsonl")
    assert [converted(row, "rec") for row in theirs] == ours
    for row in ours:
        assert row["messages"][0]["content"].count("<image>") == len(row["images"]) == 1
        assert isinstance(row["solution"], str)
        assert len(json.loads(row["solution"])) == 4


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"image": ["a.png", "b.png"]}, {"images": ["a.png", "b.png"]}),
        ({}, {"images": []}),
        ({"image": "a.png", "accu_reward_method": "mcq"}, {"accu_reward_method": "mcq"}),
    ],
)
def test_every_image_gets_one_tag_and_other_columns_stay(row, expected):
    turns = [{"from": "human", "value": "How many?"}, {"from": "gpt", "value": "<answer> 3 </answer>"}]
    made = converted({"id": 1, "conversations": turns, **row})
    assert expected.items() <= made.items()
    assert made["messages"][0]["content"] == "<image>" * len(made["images"]) + "How many?"
    assert made["solution"] == "3"


def test_rows_that_are_not_of_vlm_r1_are_refused():
    turns = [{"from": "human", "value": "<image><image>?"}, {"from": "gpt", "value": "3"}]
    with pytest.raises(RowError, match="2 <image> tags for 1 images"):
        converted({"image": "a.png", "conversations": turns})
    with pytest.raises(RowError, match="at the end one of gpt"):
        converted({"image": "a.png", "conversations": turns[:1]})
    with pytest.raises(RowError, match="needs a turn of human"):
        converted({"conversations": turns[1:] * 2})
    with pytest.raises(RowError, match="no path and no list of paths"):
        converted({"image": 3, "conversations": turns})
    for strange in (
        [1],
        {},
        *({"conversations": each} for each in (None, 7, [], [1], [{"from": []}, turns[1]])),
    ):
        with pytest.raises(RowError, match="needs conversations of turns"):
            converted(strange)


def test_a_row_of_another_form_is_named_and_the_others_are_converted(tmp_path, monkeypatch, capsys):
    turns = [{"from": "human", "value": "?"}, {"from": "gpt", "value": 1}]
    lines = ["[1]", "{", json.dumps({"image": None, "conversations": turns})]
    (tmp_path / "theirs.jsonl").write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    paths = [str(tmp_path / name) for name in ("theirs.jsonl", "ours.jsonl")]
    monkeypatch.setattr("sys.argv", ["convert.py", *paths])
    assert convert.main() == 1
    assert [row["images"] for row in testing.read_jsonl(tmp_path / "ours.jsonl")] == [[]]
    assert [line.split(": ")[0] for line in capsys.readouterr().err.splitlines()] == [
        f"{paths[0]}:1",
        f"{paths[0]}:2",
    ]
    monkeypatch.setattr("sys.argv", ["convert.py", str(tmp_path / "none.jsonl"), paths[1]])
    with pytest.raises(SystemExit, match="2"):
        convert.main()
    assert "none.jsonl" in capsys.readouterr().err
