"""What the planner prints and writes: the table, the reasons, and launch scripts that hold."""

import json
import subprocess
from dataclasses import replace

import pytest
from rich.console import Console

from swift_grpo_ext.doctor.check import command as check
from swift_grpo_ext.doctor.check import inputs
from swift_grpo_ext.doctor.plan import command, script
from swift_grpo_ext.doctor.plan.catalogue import (
    loadable,
    require_config,
)
from swift_grpo_ext.doctor.plan.search import plans
from swift_grpo_ext.doctor.plan.setting import Machine, Work
from swift_grpo_ext.doctor.plan.shape import shape_of
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import Severity
from swift_grpo_ext.group.gpu_memory import GIB

NODE = Machine(gpus_per_node=8, gpu_memory=80)


def fill_in(monkeypatch, rows):
    """The variables that a written script asks for."""
    for name, value in {"DATASET": rows, "VAL_DATASET": rows, "REWARDS": "accuracy format"}.items():
        monkeypatch.setenv(name, str(value))


def test_a_bundled_name_alone_is_no_model_that_the_host_knows(tmp_path, monkeypatch):
    assert loadable("qwen2.5-vl-72b") == "Qwen/Qwen2.5-VL-72B-Instruct"
    assert loadable("Ovis2-1B") == "thisisiron/Ovis2-1B-hf"
    for model in ("Qwen/Qwen2.5-VL-72B-Instruct", "me/Ovis2-1B", "/models/Ovis2-1B", "Ovis2-1B-hf"):
        assert loadable(model) == model
    (tmp_path / "Ovis2-1B").mkdir()
    monkeypatch.chdir(tmp_path)
    assert loadable("Ovis2-1B") == "Ovis2-1B"


@pytest.mark.parametrize(
    "machine", [NODE, Machine(nodes=2), Machine(gpus_per_node=1)], ids=["one", "two", "single"]
)
def test_the_written_script_is_shell_and_says_what_was_planned(seven, machine, tmp_path):
    work = Work()
    for plan in plans(seven, work, machine):
        if not plan.fits:
            continue
        for path in script.write(tmp_path, "Qwen/Qwen2.5-VL-7B-Instruct", seven, work, plan, machine):
            if path.suffix == ".sh":
                subprocess.run(["bash", "-n", str(path)], check=True, timeout=20)
            else:
                zero = json.loads(path.read_text())["zero_optimization"]
                assert zero.get("zero_hpz_partition_size", machine.gpus_per_node) == machine.gpus_per_node
        text = (tmp_path / "train.sh").read_text()
        assert f"--per_device_train_batch_size {plan.setting.micro_batch}" in text
        assert ("NNODES" in text) == (machine.nodes - (plan.setting.rollout == "server") > 1)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("rollout", ["colocate", "server"])
@pytest.mark.parametrize(("model", "full"), [("Qwen2.5-VL-72B", False), ("Qwen2.5-VL-7B", True)])
def test_the_written_scripts_pass_the_check(model, full, rollout, nodes, tmp_path, monkeypatch):
    rows = '{"query": "What is 1 + 2?", "solution": "3"}\n' * 16  # enough for a generation batch
    (tmp_path / "rows.jsonl").write_text(rows)
    fill_in(monkeypatch, tmp_path / "rows.jsonl")
    work, machine = Work(full=full, completion_tokens=2048, max_pixels=640_000), Machine(nodes=nodes)
    shape = shape_of(require_config(model))
    best = plans(shape, replace(work, rollouts=(rollout,)), machine)[0]
    assert best.fits
    script.write(tmp_path, f"Qwen/{model}-Instruct", shape, work, best, machine)
    run = inputs.runs_of_script(tmp_path / "train.sh", gpu_memory=80)[0]
    assert [one for one in check.findings_of(run) if one.severity is not Severity.NOTE] == []


@pytest.mark.parametrize(
    ("model", "work", "machine"),
    [
        ("Qwen3.5-9B", Work(), Machine(nodes=16)),
        ("Qwen3-VL-30B-A3B", Work(), NODE),
        ("gemma-3-4b", Work(full=True), NODE),
        ("Qwen2.5-VL-3B", Work(bits=4), Machine(gpus_per_node=1, gpu_memory=24)),
    ],
    ids=["hybrid", "experts", "full", "4bit"],
)
def test_scripts_of_other_families_and_machines_pass_the_check(model, work, machine, tmp_path, monkeypatch):
    (tmp_path / "rows.jsonl").write_text('{"query": "What is 1 + 2?", "solution": "3"}\n' * 1024)
    fill_in(monkeypatch, tmp_path / "rows.jsonl")
    shape = shape_of(require_config(model))
    rollouts = ("transformers",) if work.bits < 16 else ("colocate",)
    best = plans(shape, replace(work, rollouts=rollouts), machine)[0]
    assert best.fits
    script.write(tmp_path, loadable(model), shape, work, best, machine)
    (run,) = inputs.runs_of_script(tmp_path / "train.sh", gpu_memory=machine.gpu_memory)
    assert [one for one in check.findings_of(run) if one.severity is not Severity.NOTE] == []


def test_the_script_says_how_it_is_used_what_was_predicted_and_why(seven, tmp_path):
    best = plans(seven, Work(), NODE)[0]
    script.write(tmp_path, "Qwen/Qwen2.5-VL-7B-Instruct", seven, Work(), best, NODE)
    text = (tmp_path / "train.sh").read_text()
    comments = [line for line in text.splitlines() if line.startswith("# ")]
    assert "VAL_DATASET=held_out.jsonl" in comments[1]
    assert f"to {best.memory.peak[1] / GIB:.1f} GiB of 80" in " ".join(comments)
    words = words_of(text)
    for argument in (
        '--val_dataset "${VAL_DATASET:?}"',
        "--eval_steps 50",
        "--save_steps 50",
        "--save_total_limit 2",
        "--log_completions true",
        '--output_dir "${OUTPUT:-output/Qwen2.5-VL-7B-Instruct}"',
        "--report_to tensorboard",
    ):
        assert argument in words


def test_a_small_card_is_told_of_4_bits(capsys):
    machine = Machine(gpus_per_node=1, gpu_memory=24)
    assert not command.run("Qwen2.5-VL-7B", Work(), machine, console=Console(width=200))
    assert "With --quant-bits 4 it fits" in " ".join(capsys.readouterr().out.split())


def test_no_room_at_all_is_no_fit(seven):
    """Whatever the machine, a plan that fits leaves a hundredth of a GPU."""
    for memory in range(20, 81, 3):
        for plan in plans(seven, Work(), Machine(gpus_per_node=2, gpu_memory=memory)):
            assert plan.headroom >= 0.01 or not plan.fits


def test_zero2_comes_before_zero3_where_both_fit():
    found = plans(shape_of(require_config("Qwen2.5-VL-3B")), Work(full=True), NODE)
    stages = [plan.setting.stage for plan in found if plan.fits and "offload" not in plan.setting.preset]
    assert set(stages) == {2, 3}
    assert stages == sorted(stages)


def test_a_mixture_of_experts_gets_a_script_for_megatron_too(tmp_path, capsys):
    assert command.run("Qwen3-VL-30B-A3B", Work(), NODE, output=tmp_path, console=Console(width=200))
    assert "megatron rlhf" in " ".join(capsys.readouterr().out.split())
    text = words_of((tmp_path / "train_megatron.sh").read_text())
    assert "megatron rlhf --rlhf_type grpo" in text
    assert "--expert_model_parallel_size 8" in text
    subprocess.run(["bash", "-n", tmp_path / "train_megatron.sh"], check=True, timeout=20)


def test_a_text_model_is_planned_without_images(tmp_path):
    assert command.run("Qwen3-8B", Work(), NODE, output=tmp_path, console=Console(width=200, quiet=True))
    assert "MAX_PIXELS" not in (tmp_path / "train.sh").read_text()
    assert "--model Qwen/Qwen3-8B" in (tmp_path / "train.sh").read_text()


def words_of(text):
    return " ".join(text.replace("\\", " ").split())


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("gpus", [1, 2])
def test_one_training_rank_gets_the_deepspeed_that_was_planned(gpus, full, tmp_path):
    """Also of one rank the memory was counted with DeepSpeed, and full training needs its fp32 masters."""
    shape, work = shape_of(require_config("Qwen2.5-VL-3B")), Work(full=full)
    machine = Machine(gpus_per_node=gpus)
    for plan in plans(shape, replace(work, rollouts=("colocate",) if gpus == 1 else ("server",)), machine):
        script.write(tmp_path, "Qwen/Qwen2.5-VL-3B-Instruct", shape, work, plan, machine)
        text = words_of((tmp_path / "train.sh").read_text())
        assert plan.setting.preset or not full
        assert (f"--deepspeed {plan.setting.preset} " in text) == bool(plan.setting.preset)


def test_prompts_without_images_get_no_limit_of_pixels(seven, tmp_path):
    best = plans(seven, Work(images=0), NODE)[0]
    script.write(tmp_path, "Qwen/Qwen2.5-VL-7B-Instruct", seven, Work(images=0), best, NODE)
    assert "MAX_PIXELS" not in (tmp_path / "train.sh").read_text()


def test_what_cannot_be_planned_or_written_is_said_in_one_line(tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("")
    with pytest.raises(SwiftGrpoExtError, match="cannot write there"):
        command.run("Qwen2.5-VL-3B", Work(), NODE, output=taken)
    with pytest.raises(SwiftGrpoExtError, match="GPUs of its own"):
        command.run("Qwen2.5-VL-3B", Work(rollouts=("server",)), Machine(gpus_per_node=1))


def test_the_table_says_what_was_not_measured(capsys):
    assert command.run("Qwen/Qwen2.5-VL-72B-Instruct", Work(), NODE, console=Console(width=200))
    assert "Speed was not measured" in " ".join(capsys.readouterr().out.split())


def test_a_wish_that_cannot_be_met_names_one_that_can():
    with pytest.raises(SwiftGrpoExtError, match="a multiple of 24"):
        command.run("Qwen2.5-VL-3B", Work(batch=3, per_step=64), NODE)


def test_a_family_that_vllm_does_not_serve_is_planned_without_it(capsys):
    assert command.run("thisisiron/Ovis2-8B-hf", Work(), NODE, console=Console(width=200))
    assert "colocate" not in capsys.readouterr().out


def test_the_command_prints_the_table_and_writes_the_files(tmp_path, capsys):
    console = Console(width=160)
    assert command.run("Qwen2.5-VL-3B", Work(), NODE, output=tmp_path, console=console)
    printed = capsys.readouterr().out
    assert "3.75 B parameters" in printed
    assert {path.name for path in tmp_path.iterdir()} >= {"train.sh"}
    assert f"{NODE.gpu_memory:g} GiB" in printed
    assert "--model Qwen/Qwen2.5-VL-3B-Instruct" in (tmp_path / "train.sh").read_text()
    assert GIB == 1024**3
