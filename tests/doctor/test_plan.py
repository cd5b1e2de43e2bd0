"""The planner against DeepSpeed's estimators, reported runs, and what it says of four layouts."""

import json
import shlex
from dataclasses import fields, replace

import pytest
from rich.console import Console
from swift.arguments import RLHFArguments

from swift_grpo_ext.doctor.plan import arithmetic, command, memory
from swift_grpo_ext.doctor.plan.layouts import (
    COMPLETIONS,
    LAYOUTS,
    UNSURE,
    VERDICTS,
    Question,
    answer,
    answers,
)
from swift_grpo_ext.doctor.plan.models import find_config, loadable, published, require_config
from swift_grpo_ext.doctor.plan.setting import Machine, Setting, Work
from swift_grpo_ext.doctor.plan.shape import shape_of
from swift_grpo_ext.errors import SwiftGrpoExtError

NODE = Machine(gpus_per_node=8, gpu_memory=80)


@pytest.mark.parametrize("ranks", [8, 16])
def test_zero2_states_are_those_of_the_estimator(seven, ranks):
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    work = Work(full=True, freeze_vit=False, freeze_aligner=False)
    machine, setting = Machine(nodes=ranks // 8), Setting(stage=2)
    ours = (
        arithmetic.weight_bytes(seven, setting, machine)
        + arithmetic.gradient_bytes(seven, work, setting, machine)
        - 2 * setting.bucket
        + arithmetic.optimizer_states(seven, work, setting, machine)
        + arithmetic.step_bytes(seven, work, setting, machine)[0]
    )
    _, theirs = estimate_zero2_model_states_mem_needs(seven.total, 8, ranks // 8, cpu_offload=False)
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("nodes", [1, 4])
def test_zero3_states_are_near_the_estimator(big, nodes):
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs

    work = Work(full=True, freeze_vit=False, freeze_aligner=False)
    machine, setting = Machine(nodes=nodes), Setting(stage=3)
    ours = (
        arithmetic.weight_bytes(big, setting, machine)
        + arithmetic.gradient_bytes(big, work, setting, machine)
        - 2 * setting.bucket
        + arithmetic.optimizer_states(big, work, setting, machine)
        + arithmetic.step_bytes(big, work, setting, machine)[0]
    )
    _, theirs, largest = estimate_zero3_model_states_mem_needs(
        big.total, big.largest, 8, nodes, cpu_offload=False, cpu_offload_params=False
    )
    # They count 18 bytes per weight, we 16 and the fp32 gradients of one sub-group.
    assert 16 / 18 - 0.01 <= ours / (theirs - largest) <= 1.01


def test_more_of_anything_never_takes_less_memory(seven):
    work, setting = Work(), Setting(stage=3, micro_batch=2)
    base = memory.memory_range(seven, work, setting, NODE).peak
    more = [
        (replace(work, completion_tokens=4096), setting),
        (replace(work, max_pixels=4_000_000), setting),
        (replace(work, images=4), setting),
        (replace(work, full=True), setting),
        (work, replace(setting, checkpointing=False)),
        (replace(work, kl=True), setting),
        (work, replace(setting, bucket=5e8)),
        (work, replace(setting, sleep_level=0)),
        (work, replace(setting, stage=0)),
    ]
    for larger, how in more:
        peak = memory.memory_range(seven, larger, how, NODE).peak
        assert peak[0] >= base[0]
        assert peak[1] >= base[1]
        assert peak[0] <= peak[1]


def test_a_config_without_vision_is_planned_too():
    shape = shape_of({**find_config("Ovis2-1B")["text_config"], "model_type": "qwen2"})
    assert shape.vision is None
    assert shape.tower == 0
    assert answer(Question(shape, Work(images=0), NODE), "ddp").verdict == 0


def test_the_reported_72b_run_fails_and_the_reason_is_given(big):
    """ms-swift#3592: TP 8, 4 generations, zero3_offload, utilization 0.3: whole weights in the sync."""
    work = Work(generations=4, max_pixels=640_000, completion_tokens=2048)
    reported = replace(
        LAYOUTS["ext_zero3_offload"], tensor_parallel=8, utilization=0.3, sleep_level=0, move_model_batches=0
    )
    (problem,) = memory.objections(big, work, reported, NODE)
    assert "in the weight sync to vLLM" in problem.what
    assert "gathered for the sync 136.7" in problem.what
    assert len(problem.what) <= 200


# Runs of issue threads: what was asked, the layout that was meant, and the verdicts that are not wrong.
RUNS = "fits", "tight"
REPORTED = {
    "ms-swift#3426, 7B LoRA on 2 x 80: runs": ("Qwen2.5-VL-7B", {}, Machine(1, 2), "ddp", RUNS),
    "ms-swift#3416, 72B LoRA on 8 x 80: runs": ("Qwen2.5-VL-72B", {}, NODE, "ext_zero3", RUNS),
    "72B LoRA on 4 x 80: runs": ("Qwen2.5-72B", {}, Machine(1, 4), "ext_zero3_offload", RUNS),
    "Omni on 4 x 50: runs": ("Qwen2.5-Omni-7B", {}, Machine(1, 4, 50), "ddp", RUNS),
    "ms-swift#4341, 7B on 2 x 80: no": (
        "Qwen2.5-VL-7B",
        {"full": True, "batch": 8},
        Machine(1, 2),
        "ext_zero3",
        ("unsure", "no"),
    ),
    "Qwen3-VL#938, 8B LoRA on 24: no": ("Qwen3-VL-8B", {}, Machine(1, 1, 24), "ddp", ("no",)),
    "Qwen3-VL#938, 8B LoRA on 4 V100: no": (
        "Qwen3-VL-8B",
        {},
        Machine(1, 4, 16),
        "ext_zero3_offload",
        ("unsure", "no"),
    ),
    "simple_GRPO#21, 7B on 2 x 96: 80 to 90 GB": (
        "Qwen2.5-7B",
        {"full": True},
        Machine(1, 2, 96),
        "ext_zero3",
        RUNS,
    ),
    "ms-swift#4477, 3B on 2 x 48: possible": ("Qwen2.5-VL-3B", {}, Machine(1, 2, 48), "ddp", RUNS),
    # Images of any size, and rows that share no prompt.
    "ms-swift#4311, 3B on 4 x 90: no": (
        "Qwen2.5-VL-3B",
        {"full": True, "batch": 8, "max_pixels": 16384 * 28 * 28, "shares": False},
        Machine(1, 4, 90),
        "ext_zero2",
        ("unsure", "no"),
    ),
}


@pytest.mark.parametrize("name", REPORTED)
def test_what_was_reported_is_what_the_table_says(name):
    model, asked, machine, layout, right = REPORTED[name]
    asked = dict(asked)
    batch, shares = asked.pop("batch", 1), asked.pop("shares", True)
    question = Question(shape_of(require_config(model)), Work(**asked), machine, batch, shares)
    assert VERDICTS[answer(question, layout).verdict] in right


def test_without_bf16_no_layout_runs(seven):
    assert {row.verdict for row in answers(Question(seven, Work(), NODE, bf16=False))} == {3}
    old = Question(seven, Work(full=False), Machine(1, 8, 16))
    assert all(row.verdict for row in answers(old)), "a card of 16 GiB may be a V100"


def test_full_training_without_fp32_weights_is_no_layout(seven):
    row = answer(Question(seven, Work(full=True), Machine(1, 8, 400)), "ddp")
    assert (VERDICTS[row.verdict], "fp32" in row.reason) == ("no", True)


@pytest.mark.parametrize(
    ("gpus", "generations", "batch"), [(1, 8, 1), (8, 8, 2), (6, 8, 1), (7, 4, 3), (64, 16, 4)]
)
def test_a_step_has_64_completions_and_whole_groups(seven, gpus, generations, batch):
    question = Question(seven, Work(generations=generations), Machine(1, gpus), batch)
    completions = gpus * batch * question.accumulation
    assert completions >= COMPLETIONS
    assert completions % generations == 0


def printed(model, work, machine, capsys, **options):
    fits = command.run(model, work, machine, console=Console(width=120), **options)
    return fits, capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "work", "machine"),
    [
        ("Qwen2.5-VL-72B", Work(), NODE),
        ("Qwen2.5-VL-7B", Work(full=True), Machine(2, 8)),
        ("Qwen3-8B", Work(), Machine(1, 1)),
        ("Ovis2-8B", Work(), NODE),
    ],
)
def test_the_command_of_the_best_layout_has_options_that_ms_swift_knows(model, work, machine, capsys):
    fits, text = printed(model, work, machine, capsys)
    assert fits
    words = shlex.split(text[text.index("NPROC_PER_NODE") :].replace("\\\n", " "))
    options = [word[2:] for word in words if word.startswith("--")]
    assert {"swift", "rlhf"} < set(words)
    assert not set(options) - {field.name for field in fields(RLHFArguments)}
    assert len(options) == len(set(options))
    assert words[words.index("--model") + 1] == loadable(model)
    assert ("MAX_PIXELS=1003520" in words) == (model != "Qwen3-8B")
    assert ("NNODES=2" in words) == (machine.nodes > 1)
    assert ("colocate" in words) == (model != "Ovis2-8B"), "vLLM does not serve Ovis2"


def test_the_table_has_four_layouts_its_assumptions_and_what_helps(capsys):
    fits, text = printed("Qwen2.5-VL-7B", Work(full=True), Machine(1, 2), capsys, batch=8)
    rows = [line.split() for line in text.splitlines() if line.split()[:1] and line.split()[0] in WORDS]
    assert [row[0] for row in rows] == ["ddp", "zero2", "zero3", "zero3_offload"]
    assert "unsure" in rows[2]
    assert "to" in rows[2], "a range where it decides"
    assert "to" not in rows[3]
    assert "--tuner_type lora: -" in text
    assert "MAX_PIXELS=1003520" in text
    assert "shares prompts" in text
    assert "--no-sharing: ms-swift's own" in text
    assert "bf16 (V100 and T4 do not: --no-bf16)" in text
    assert fits


WORDS = {name.removeprefix("ext_") for name in LAYOUTS}


def test_an_engine_that_does_not_fit_by_itself_is_seen_in_its_layouts(big):
    """A GPU of 24 GiB holds no share of the weights, whatever the trainer keeps elsewhere."""
    row = answer(Question(big, Work(), Machine(1, 1, 24)), "ext_zero3_offload")
    assert row.setting.utilization > 1
    assert VERDICTS[row.verdict] == "no"
    assert row.margin < 0


def test_ms_swift_alone_is_assumed_where_it_is_asked_for(capsys):
    _, text = printed("Qwen2.5-VL-7B", Work(), NODE, capsys, shares=False)
    assert "Assumed: ms-swift alone; prompts of" in text


def test_where_nothing_fits_it_says_so(capsys):
    fits, text = printed("Qwen2.5-VL-72B", Work(full=True), Machine(1, 1, 24), capsys)
    assert not fits
    assert "No layout is certain to fit." in text
    assert "swift rlhf" not in text


@pytest.mark.parametrize("name", ["Qwen2.5-VL-7", "qwen/qwen2.5-vl7b", "qwen2_5_vll"])
def test_an_unknown_model_names_the_nearest_in_one_line(name):
    with pytest.raises(SwiftGrpoExtError, match=r"did you mean (Qwen2\.5-VL-7B|qwen2_5_vl)\?") as raised:
        require_config(name + "x")
    assert len(str(raised.value)) < 250


def test_a_model_is_given_by_folder_by_file_or_by_type(tmp_path):
    config = find_config("Qwen2.5-VL-3B")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert find_config(str(tmp_path)) == find_config(str(tmp_path / "config.json")) == config
    assert require_config("qwen2_5_vl") == {"model_type": "qwen2_5_vl"}
    assert shape_of(require_config("qwen2_5_vl")).total > 1e9
    assert set(published()) > {"Qwen2.5-VL-7B", "Qwen3-VL-30B-A3B", "Ovis2-8B"}


def test_settings_that_are_worse_never_look_better(big):
    question = Question(big, Work(), NODE)
    without = replace(question, shares=False)
    for name in LAYOUTS:
        assert answer(without, name).memory.peak[1] >= answer(question, name).memory.peak[1]
    assert answer(question, "ext_zero3").verdict < UNSURE
