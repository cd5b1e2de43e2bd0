"""The rules of check: releases, patches, DeepSpeed's file, memory, and what they are held against in ms-swift."""

import base64
from dataclasses import replace

import pytest

from swift_grpo_ext.doctor.check import command, inputs
from swift_grpo_ext.doctor.check.facts import arguments, rows
from swift_grpo_ext.doctor.check.facts.arguments import Arguments, parse
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.rules import table
from swift_grpo_ext.doctor.check.script import Command, Launch
from swift_grpo_ext.doctor.check.unknown import Unknown
from swift_grpo_ext.findings import NotKnownError, Problem, RuleTable, Severity
from swift_grpo_ext.plugin_files import plugin_file

OLD = {"deepspeed": "0.18.9", "transformers": "5.19.0"}
OFFLOADED = ["--deepspeed", "zero2_offload", "--gradient_accumulation_steps", "8", "--num_generations", "4"]
HEALED = {
    "ds-zero2-offload-drops-gradients": (OFFLOADED, "B1-zero2-offload"),
}


@pytest.mark.parametrize("rule", HEALED)
@pytest.mark.parametrize("parts", [[], ["all"], ["rewards"], ["compat"]], ids=lambda parts: "+".join(parts))
def test_what_our_patches_heal_is_an_error_only_without_them(rule, parts):
    words, patch_id = HEALED[rule]
    if parts:
        words = [*words, "--external_plugins", *(str(plugin_file(part)) for part in parts)]
    healing = bool({"all", "compat"} & set(parts))
    for environ in (
        {},
        {"SWIFT_GRPO_EXT_DISABLE": f"compat.{patch_id}"},
        {"SWIFT_GRPO_EXT_DISABLE": "compat"},
    ):
        run = Run(parse(["--rlhf_type", "grpo", *words]), environ=environ, versions=OLD)
        found = {finding.rule for finding in table.judged(run)}
        assert (rule in found) == (not healing or bool(environ))


def look_of(rule):
    return next(one for one in table.rules if one.id == rule)


def test_an_image_in_base64_is_no_path(tmp_path):
    text = base64.b64encode(bytes(range(256))).decode()
    run = inputs.run_of(["--rlhf_type", "grpo"], environ={})
    assert rows.missing_medium(run, rows.SeenRow("a:1", tmp_path, {"images": [text]})) is None
    assert rows.missing_medium(run, rows.SeenRow("a:1", tmp_path, {"images": ["gone.png"]}))


NEW = {
    "best-by-loss": "--val_dataset rows.jsonl --metric_for_best_model eval_loss",
}
SOUND = {
    "best-by-loss": "--val_dataset rows.jsonl --metric_for_best_model eval_reward",
}


@pytest.mark.parametrize("rule", NEW)
def test_values_that_do_not_go_together_are_found(rule):
    look = next(one for one in table.rules if one.id == rule)
    assert [one.rule for one in look.findings(Run(parse(["--rlhf_type", "grpo", *NEW[rule].split()])))]
    assert not list(look.findings(Run(parse(["--rlhf_type", "grpo", *SOUND[rule].split()]))))


@pytest.mark.parametrize(("devices", "is_found"), [("", True), ("-1", True), ("0", False)])
def test_a_launch_that_names_no_gpu_is_found(devices, is_found):
    look = next(one for one in table.rules if one.id == "devices-and-ranks")
    environ = {"CUDA_VISIBLE_DEVICES": devices}
    launch = Launch(commands=[Command(("swift", "rlhf"))], text=f"export CUDA_VISIBLE_DEVICES={devices}")
    for words in (["--rlhf_type", "grpo"], ["--rlhf_type", "grpo", Unknown('"$@"', many=True)]):
        run = Run(parse(words), environ=environ, launch=launch)
        assert bool(list(look.findings(run))) == is_found


@pytest.mark.parametrize(
    ("devices", "is_found"), [("GPU-8932,GPU-8933", False), ("0,1,2", True), ("3,3", True)]
)
def test_gpus_that_are_not_named_by_number_are_not_counted(devices, is_found):
    run = inputs.run_of(
        ["--use_vllm", "true"], environ={"CUDA_VISIBLE_DEVICES": devices, "NPROC_PER_NODE": "4"}
    )
    assert bool(list(look_of("devices-and-ranks").findings(run))) == is_found


@pytest.mark.parametrize(
    ("release", "size", "is_found"),
    [("4.5.0", 2, True), ("4.5.2", 4, True), ("4.5.2", 1, False), ("4.5.3", 2, False), ("4.6.0", 2, False)],
)
def test_wrong_gradients_of_megatron_are_refused_with_the_cure(release, size, is_found):
    words = ["--rlhf_type", "grpo", "--tensor_model_parallel_size", str(size)]
    run = inputs.run_of(words, environ={})
    run = Run(run.arguments, versions={"ms-swift": release})
    look = next(one for one in table.rules if one.id == "tensor-parallel-gradients")
    found = list(look.findings(run))
    assert bool(found) == is_found
    assert all("ms-swift>=4.5.3" in one.fix for one in found)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("freeze_vit", "--model Qwen/Qwen2.5-VL-3B-Instruct"),
    ],
)
def test_a_value_that_is_compared_with_none_or_false_is_named_if_it_is_not_known(name, more):
    words = ["--rlhf_type", "grpo", *more.split(), f"--{name}", Unknown("$VALUE")]
    run = replace(inputs.run_of(words, environ={}), gpu_memory=80)
    assert f"--{name}" in {one.not_checked for one in table.judged(run)}


def test_a_rule_that_raises_is_named_and_the_others_go_on():
    rules = RuleTable()

    @rules.rule("first", Severity.ERROR)
    def _first(_run):
        yield Problem("before the fault")
        raise KeyError("gone")

    @rules.rule("second", Severity.WARNING)
    def _second(_run):
        yield Problem("found")
        raise NotKnownError("$VALUE")

    found = [(one.rule, one.not_checked) for one in rules.judged(None)]
    assert found == [
        ("first", ""),
        ("second", ""),
        ("rule-failed", "the rule first"),
        ("not-known-here", "$VALUE"),
    ]


def test_every_rule_has_symptom_and_cause_and_its_own_name():
    names = [rule.id for rule in table.rules]
    assert len(names) == len(set(names))
    assert all(rule.symptoms and rule.cause for rule in table.rules)


@pytest.mark.parametrize(
    ("version", "frozen", "stale"),
    [("0.15.1", False, True), ("0.16.0", False, False), ("0.15.1", True, False)],
)
def test_features_of_a_trained_tower_are_stale_with_an_old_vllm(version, frozen, stale):
    values = {"use_vllm": True, "freeze_vit": frozen, "freeze_aligner": True, "external_plugins": []}
    run = Run(Arguments(values, frozenset()), versions={"vllm": version})
    look = next(rule for rule in table.rules if rule.id == "stale-image-features")
    assert bool(list(look.findings(run))) == stale


@pytest.mark.parametrize(
    ("text", "rule", "fix"),
    [
        ("NPROC_PER_NODE=8 python3 -m swift.cli.rlhf", "ranks-not-started", "torchrun"),
        ("swift grpo", "no-such-command", "swift rlhf --rlhf_type grpo"),
    ],
)
def test_what_starts_something_else_than_is_meant_is_found(text, rule, fix, tmp_path):
    path = tmp_path / "train.sh"
    words = "--rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct --reward_funcs accuracy --num_generations 4"
    path.write_text(f"{text} {words}\n")
    found = command.verdict_of([str(path)], row_limit=0).findings
    assert [fix in one.fix for one in found if one.rule == rule] == [True]
    path.write_text(f"NPROC_PER_NODE=8 torchrun --nproc_per_node 8 -m swift.cli.rlhf {words}\n")
    assert rule not in {one.rule for one in command.verdict_of([str(path)], row_limit=0).findings}


@pytest.mark.parametrize(
    "words",
    [
        "--use_vllm true --vllm_mode colocate --vllm_enable_lora true --lora_rank 64",
        "--learning_rate 1e-5",
    ],
)
def test_what_runs_with_ms_swift_is_no_error(words):
    """vLLM takes adapters of any rank, for ms-swift tells it theirs; nodes get their address from the platform."""
    given = ["--rlhf_type", "grpo", "--model", "Qwen/Qwen2.5-VL-3B-Instruct", "--reward_funcs", "accuracy"]
    run = inputs.run_of([*given, *words.split()], environ={"NNODES": "2", "NPROC_PER_NODE": "8"})
    assert [one for one in table.judged(run) if one.severity is Severity.ERROR] == []


def test_old_names_have_names_in_the_installed_release():
    parsers = [host_table.options(kind) for kind in host_table.TRAIN]
    options = set().union(*parsers)
    for old, new in arguments.RENAMED.items():
        assert not new or f"--{new}" in options, (old, new)
        assert any(f"--{old}" not in parser for parser in parsers), old
    for name in ("qwen2_5", "deepseek_r1_distill", "qwen2.5_vl"):
        run = inputs.run_of(["--rlhf_type", "grpo", "--model_type", name], environ={})
        (fix,) = [one.fix for one in look_of("unknown-name").findings(run)]
        assert fix in ("--model_type qwen2", "--model_type qwen2_5_vl") or fix.startswith("leave it out: "), (
            name
        )


@pytest.mark.parametrize(
    ("option", "mend"),
    [
        ("save", "--output_dir"),
        ("max_epochs", "--num_train_epochs"),
        ("log_interval", "--logging_steps"),
        ("save_interval", "--save_steps"),
        ("load_safetensors", "it is gone, leave it out"),
        ("train_type", "--tuner_type"),
        ("recompute_everything", "its name in this release, or leave it out"),
    ],
)
def test_names_of_3x_are_mended_for_megatron(option, mend):
    run = inputs.run_of(["megatron", "rlhf", "--rlhf_type", "grpo", f"--{option}", "1"], environ={})
    assert [one.fix for one in run.arguments.refusals] == [mend]


RAY = """
rlhf_type: grpo
model: Qwen/Qwen2.5-VL-3B-Instruct
dataset: my/data
reward_funcs: [accuracy]
use_vllm: true
vllm_mode: colocate
num_generations: 8
global_batch_size: 16
micro_batch_size: 1
colocate_groups: [[train, rollout]]
train:
  gpus: 8
  tensor_model_parallel_size: 2
  lr: 1.0e-6
  save: out
rollout:
  gpus: 8
  vllm_tensor_parallel_size: 2
"""


@pytest.mark.parametrize(
    "words", [["run.yaml"], ["megatron", "rlhf", "--use_ray", "true", "--config", "run.yaml"]]
)
def test_a_configuration_of_ray_is_judged_as_what_it_is(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(RAY)
    (run,) = inputs.runs(words)
    assert (run.megatron, run.ranks, run.arguments.tensor_model_parallel_size) == (True, 8, 2)
    assert [one.fix for one in table.judged(run) if one.severity is Severity.ERROR] == ["--output_dir"]


def test_what_follows_from_a_file_that_is_not_read_is_not_judged():
    words = ["--rlhf_type", "grpo", "--config", "run.yaml", "--model", "Qwen/Qwen2.5-VL-3B-Instruct"]
    found = table.judged(inputs.run_of(words, environ={}))
    assert {one.rule for one in found if one.severity is Severity.ERROR} == {"args-refused"}
    assert "options in --config" in {one.not_checked for one in found}
