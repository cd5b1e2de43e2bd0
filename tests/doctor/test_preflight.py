"""Preflight inside a run: what it stops, and where it keeps quiet."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from swift_grpo_ext.doctor.check import command, preflight
from swift_grpo_ext.doctor.check.rules import refused
from swift_grpo_ext.doctor.plan.models import require_config
from swift_grpo_ext.errors import SettingsError
from swift_grpo_ext.findings import NotKnownError
from swift_grpo_ext.settings import load_settings


@pytest.fixture
def argv(monkeypatch):
    def set_to(*words):
        monkeypatch.setattr(sys, "argv", list(words))

    monkeypatch.delenv("LOCAL_RANK", raising=False)
    return set_to


def test_other_programs_are_left_alone(argv, capsys):
    argv("/x/pytest", "--train_type", "lora")
    assert preflight.register() == []
    assert capsys.readouterr().out == ""


def test_another_command_is_not_checked_and_ends(argv, capsys):
    argv("/x/swift/cli/rollout.py", "--train_type", "lora")
    with pytest.raises(SystemExit) as end:
        preflight.register()
    assert end.value.code == 0
    assert capsys.readouterr().out == "not checked: rollout, which is not started\n"


def test_only_the_first_rank_of_a_node_speaks(argv, capsys, monkeypatch):
    argv("/x/swift/cli/rlhf.py", "--train_type", "lora")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(SystemExit) as end:
        preflight.register()
    assert end.value.code == 0
    assert capsys.readouterr().out == ""


def test_another_value_of_the_setting_is_an_error_with_the_right_one(monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_PREFLIGHT", "1")
    with pytest.raises(SettingsError, match="'off' or 'only'"):
        load_settings()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--train_type", "lora"], 2),
        (["--reward_funcs", "accuracy", "--use_vllm", "true", "--vllm_mode", "colocate"], 0),
        (["--config", "run.yaml"], 2),
    ],
)
def test_megatron_and_the_driver_of_ray_are_checked_too(argv, capsys, words, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = (
        "rlhf_type: grpo\nmodel: my/model\ntrain:\n  gpus: 8\n  tensor_model_parallel_size: 2\n  save: out\n"
    )
    (tmp_path / "run.yaml").write_text(config)
    given = ["--rlhf_type", "grpo", "--model", "my/model", "--dataset", "my/data"]
    argv("/x/swift/cli/_megatron/rlhf.py", *(words if "--config" in words else [*given, *words]))
    monkeypatch.setattr(refused, "refusals", lambda runs: [])
    monkeypatch.setattr(command, "refusals", lambda runs: [])
    with pytest.raises(SystemExit) as end:
        preflight.register()
    assert end.value.code == code
    printed = capsys.readouterr().out
    assert ("--output_dir" in printed) == ("--config" in words)
    assert ("--tuner_type" in printed) == ("--train_type" in words)


RANK = {"LOCAL_RANK": "0", "WORLD_SIZE": "4", "NPROC_PER_NODE": "8"}


@pytest.mark.parametrize(
    ("environ", "ranks", "is_lone"),
    [
        ({**RANK, "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2"}, (2, 2), False),
        (RANK, (None, None), False),  # DeepSpeed's launcher
        ({"NPROC_PER_NODE": "2"}, (2, 1), True),
        ({}, (1, 1), False),
    ],
)
@pytest.mark.parametrize("program", ["/x/swift/cli/rlhf.py", "/x/swift/cli/_megatron/rlhf.py"])
def test_the_ranks_are_those_that_were_started(argv, capsys, monkeypatch, environ, ranks, is_lone, program):
    argv(program, "--rlhf_type", "grpo", "--seed", "7")
    for name in ("NPROC_PER_NODE", "NNODES", "GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    seen = []
    monkeypatch.setattr(command, "refusals", lambda runs: seen.extend(runs) or [])
    with pytest.raises(SystemExit):
        preflight.register()
    (run,) = seen
    assert run.megatron == ("_megatron" in program)
    if ranks[0]:
        assert (run.ranks_per_node, run.nodes) == ranks
    else:
        with pytest.raises(NotKnownError):
            _ = run.ranks
    assert ("python starts one process" in capsys.readouterr().out) == is_lone


def test_the_driver_of_ray_is_one_process_and_starts_its_workers(argv, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(
        "rlhf_type: grpo\nreward_funcs: [accuracy]\ntrain: {gpus: 8, train_type: lora}\n"
    )
    argv("/x/swift/cli/_megatron/rlhf.py", "--config", "run.yaml")
    monkeypatch.setattr(command, "refusals", lambda runs: [])
    with pytest.raises(SystemExit) as end:
        preflight.register()
    printed = capsys.readouterr().out
    assert end.value.code == 0
    assert "warning ms-swift does not know it, and goes on without it [--train_type]" in printed
    assert "python starts one process" not in printed


SCRIPT = """\
#!/usr/bin/env bash
set -euo pipefail
make_args() { printf '%s\\n' --train_type lora; }
mapfile -t ARGS < <(make_args)
export MAX_PIXELS=$((1280 * 28 * 28))
swift rlhf --rlhf_type grpo --model MODEL --dataset DATA --reward_funcs ext_count --use_hf true \\
    --external_plugins "$(swift-grpo-ext path)" --num_generations 4 \\
    --per_device_train_batch_size "$(echo 4)" "${ARGS[@]}"
echo "never reached"
"""


def test_only_checks_what_the_users_own_shell_made_of_the_script(tmp_path):
    """The real ``swift`` command; the model's folder holds a configuration and no weights, so none can load."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(json.dumps(require_config("Qwen2.5-VL-3B")))
    (tmp_path / "rows.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "2+2?"}], "count": 4}\n' * 8
    )
    text = SCRIPT.replace("MODEL", f"{tmp_path}/model").replace("DATA", f"{tmp_path}/rows.jsonl")
    (tmp_path / "train.sh").write_text(text)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SWIFT_GRPO_EXT")}
    environ |= {"SWIFT_GRPO_EXT_PREFLIGHT": "only", "HF_HUB_OFFLINE": "1"}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    done = subprocess.run(
        ["bash", "train.sh"], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=600
    )
    assert "-> --tuner_type" in done.stdout, done.stderr[-2000:]
    assert "it will fail: 1 error" in done.stdout
    assert done.returncode != 0
    assert "never reached" not in done.stdout
    assert not list((tmp_path).glob("output/**/args.json"))
