"""The rules of check: releases, patches, DeepSpeed's file, memory, and what they are held against in ms-swift."""

import base64
import json
from pathlib import Path

import pytest

from swift_grpo_ext import versions
from swift_grpo_ext.doctor.check import command, inputs
from swift_grpo_ext.doctor.check.facts.arguments import Arguments, parse
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.launch.commands import Command, Launch
from swift_grpo_ext.doctor.check.launch.script import read_script
from swift_grpo_ext.doctor.check.rules import table, values
from swift_grpo_ext.doctor.check.unknown import Unknown
from swift_grpo_ext.findings import NotKnownError, Problem, RuleTable, Severity
from swift_grpo_ext.plugin_files import plugin_file

OLD = {"deepspeed": "0.18.9", "transformers": "5.19.0"}
OFFLOADED = ["--deepspeed", "zero2_offload", "--gradient_accumulation_steps", "8", "--num_generations", "4"]
LORA_ZERO3 = ["--deepspeed", "zero3", "--use_vllm", "false"]
HEALED = {
    "ds-zero2-offload-drops-gradients": (OFFLOADED, "B1-zero2-offload"),
    "zero3-loses-its-trace": (LORA_ZERO3, "A3-zero3-trace"),
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


@pytest.mark.parametrize("release", [("trl", "0.25.1"), ("msgspec", None), ("torch", "2.6.0")], ids=str)
def test_packages_that_do_not_fit_are_named(release, monkeypatch):
    real = versions.installed_version
    assert list(look_of("packages").findings(Run(parse([])))) == []
    package, version = release
    monkeypatch.setattr(
        versions, "installed_version", lambda name: version if name == package else real(name)
    )
    (finding,) = look_of("packages").findings(Run(parse([])))
    assert finding.where == {"torch": "torchvision"}.get(package, package)
    assert "pip install" in finding.fix


def look_of(rule):
    return next(one for one in table.rules if one.id == rule)


def test_releases_that_lose_zero3s_trace_are_named():
    values = {
        "tuner_type": "lora",
        "external_plugins": [],
        "use_vllm": False,
        "ds3_gather_for_generation": True,
        "deepspeed": {"zero_optimization": {"stage": 3}},
    }
    run = Run(Arguments(values, frozenset()), versions={"deepspeed": "0.18.9", "transformers": "5.19.0"})
    look = look_of("zero3-loses-its-trace")
    assert list(look.findings(run))
    good = {"deepspeed": "0.19.8", "transformers": "5.19.0"}
    assert not list(look.findings(Run(run.arguments, versions=good)))


@pytest.mark.parametrize(
    "config",
    [
        {"zero_optimization": True},
        {"zero_optimization": None},
        {"zero_optimization": {}},
        {"zero_optimization": {"stage": "3"}},
        {"zero_optimization": {"stage": 3, "offload_optimizer": "cpu"}},
        {"zero_optimization": {"stage": 2, "offload_optimizer": True}},
    ],
    ids=json.dumps,
)
def test_a_deepspeed_file_that_is_none_is_said_in_one_line(config, tmp_path):
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(config))
    words = ["--rlhf_type", "grpo", "--model", "Qwen/Qwen2.5-VL-3B-Instruct", "--deepspeed", str(path)]
    for more in ([], ["--zero_hpz_partition_size", "8"]):
        found = command.findings_of(inputs.run_of([*words, *more], environ={}, gpu_memory=80))
        refused = [one.what for one in found if one.rule == "deepspeed-refuses"]
        assert refused or more
        assert not any("\n" in what for what in refused)


def test_the_losses_are_those_of_the_host():
    from swift.rlhf_trainers import grpo_trainer

    source = Path(grpo_trainer.__file__).read_text(encoding="utf-8")
    assert all(f"'{name}'" in source for name in values.LOSSES if name != "dapo")
    assert "Unknown loss type" in source


def test_memory_counts_the_images_of_the_first_rows(tmp_path):
    from PIL import Image

    from swift_grpo_ext.doctor.check.facts import media
    from swift_grpo_ext.doctor.check.rules.memory import least_work, work_of

    for name, side in (("a.png", 100), ("b.png", 400)):
        Image.new("RGB", (side, side)).save(tmp_path / name)
    rows = [
        {"images": [str(tmp_path / "a.png")]},
        {"images": [str(tmp_path / "a.png"), str(tmp_path / "b.png")]},
    ]
    words = [
        "--rlhf_type",
        "grpo",
        "--model",
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "--dataset",
        "my/data",
    ]
    run = inputs.run_of(words, environ={})
    seen = media.images_seen([media.media_of(run, row, tmp_path) for row in rows])
    assert (seen.images, seen.pixels) == ((1, 2), (10_000, 160_000))
    work = work_of(run, seen)
    assert (work.images, work.max_pixels) == (2, 160_000)
    assert least_work(work, seen).max_pixels == 10_000
    assert work_of(inputs.run_of(words, environ={"MAX_PIXELS": "50176"}), seen).max_pixels == 50_176


def test_an_image_in_base64_is_no_path(tmp_path):
    from PIL import Image

    from swift_grpo_ext.doctor.check.facts import media

    Image.effect_noise((20, 20), 50).save(
        tmp_path / "a.png"
    )  # too long for a file's name, too short for a photo
    text = base64.b64encode((tmp_path / "a.png").read_bytes()).decode()
    assert 256 < len(text) < 2000
    run = inputs.run_of(["--rlhf_type", "grpo"], environ={})
    row = {"messages": [{"role": "user", "content": "<image>?"}]}
    (sound,) = media.media_of(run, {**row, "images": [text]}, tmp_path)["images"]
    (broken,) = media.media_of(run, {**row, "images": ["AAAA" + text[4:]]}, tmp_path)["images"]
    assert not sound.fault
    assert broken.fault


def test_the_machines_memory_is_part_of_the_arithmetic():
    words = [
        "--rlhf_type",
        "grpo",
        "--model",
        "Qwen/Qwen2.5-VL-72B-Instruct",
        "--dataset",
        "my/data",
        "--reward_funcs",
        "accuracy",
    ]
    words += [
        "--deepspeed",
        "zero3_offload",
        "--tuner_type",
        "full",
        "--num_generations",
        "8",
        "--learning_rate",
        "1e-6",
    ]
    words += ["--gradient_accumulation_steps", "8"]
    small, large = (
        command.verdict_of(words, row_limit=0, gpu_memory=80, cpu_memory=size) for size in (64, 8000)
    )
    assert "of the machine's 64 GiB of memory" in str(small.findings)
    assert "of the machine's" not in str(large.findings)


NEW = {
    "best-by-loss": "--val_dataset rows.jsonl --metric_for_best_model eval_loss",
    "servers-and-ports": "--use_vllm true --vllm_mode server --vllm_server_host a b --vllm_server_port 8000",
}
SOUND = {
    "best-by-loss": "--val_dataset rows.jsonl --metric_for_best_model eval_reward",
    "servers-and-ports": "--use_vllm true --vllm_mode server --vllm_server_host a b --vllm_server_port 8000 8001",
}


@pytest.mark.parametrize("rule", NEW)
def test_values_that_do_not_go_together_are_found(rule):
    look = next(one for one in table.rules if one.id == rule)
    assert [one.rule for one in look.findings(Run(parse(["--rlhf_type", "grpo", *NEW[rule].split()])))]
    assert not list(look.findings(Run(parse(["--rlhf_type", "grpo", *SOUND[rule].split()]))))


@pytest.mark.parametrize(
    ("words", "names"),
    [("--a '$N'", ["N"]), ("--a '${N}/b'", ["N"]), ('--a "$N"', []), ("--a '$UNKNOWN' --b '^x$'", [])],
)
def test_variables_between_single_quotes_are_named(words, names):
    launch = read_script(f"N=8; swift rlhf {words}")
    run = Run(parse([]), launch=launch, command=launch.commands[0])
    assert [one.where for one in look_of("variable-in-single-quotes").findings(run)] == names


@pytest.mark.parametrize(("devices", "is_found"), [("", True), ("-1", True), ("0", False)])
def test_a_launch_that_names_no_gpu_is_found(devices, is_found):
    look = next(one for one in table.rules if one.id == "devices-and-ranks")
    environ = {"CUDA_VISIBLE_DEVICES": devices}
    launch = Launch(commands=[Command(("swift", "rlhf"))], names=set(environ))
    for words in (["--rlhf_type", "grpo"], ["--rlhf_type", "grpo", Unknown('"$@"', many=True)]):
        run = Run(parse(words), environ=environ, launch=launch)
        assert bool(list(look.findings(run))) == is_found


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
    ("words", "what", "fix"),
    [
        ("", None, None),
        ("--context_parallel_size 2", "images encoded once", "--context_parallel_size 1"),
        ("--router_replay_mode R2", "router replay (R2)", "--router_replay_mode disabled"),
        ("--attention_backend local", "shared prompts are off", "--attention_backend flash"),
    ],
)
def test_what_turns_gains_off_with_megatron_is_said(words, what, fix):
    typed = ["--rlhf_type", "grpo", "--tensor_model_parallel_size", "1", *words.split()]
    look = next(one for one in table.rules if one.id == "megatron-gains-off")
    found = list(look.findings(inputs.run_of(typed, environ={})))
    assert bool(found) == bool(what)
    assert all(what in one.what and one.fix == fix for one in found)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("freeze_vit", "--use_vllm true --vllm_mode colocate --vllm_enable_lora true"),
        ("freeze_aligner", "--model thisisiron/Ovis2-2B-hf"),
        ("vit_gradient_checkpointing", "--model Qwen/Qwen2.5-VL-3B-Instruct"),
        ("use_gym_env", "--reward_weights 1 1"),
    ],
)
def test_a_value_that_is_compared_with_none_or_false_is_named_if_it_is_not_known(name, more):
    words = ["--rlhf_type", "grpo", *more.split(), f"--{name}", Unknown("$VALUE")]
    run = inputs.run_of(words, environ={}, gpu_memory=80)
    assert f"--{name} ($VALUE)" in {one.not_checked for one in table.judged(run)}


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


TEXT_TURNS = """
class TextTurns(MultiTurnScheduler):
    async def run(self, infer_request, request_config, **kwargs):
        return RolloutOutput(response=await self.ask(infer_request), messages=infer_request.messages)

multi_turns["text_turns"] = TextTurns
"""


@pytest.mark.parametrize(
    ("words", "text", "expected"),
    [
        (["text_turns"], TEXT_TURNS, {"turns-tokenized-again"}),
        (["text_turns"], TEXT_TURNS.replace("response=", "response_token_ids=[], response="), set()),
        (["another"], TEXT_TURNS, set()),
        (["thinking_tips_scheduler"], "", {"turns-tokenized-again"}),
        (["tree_rollout_scheduler", "--loss_type", "dapo"], "", {"shared-turn-without-gradient"}),
        (["tree_rollout_scheduler", "--loss_type", "grpo"], "", set()),
    ],
)
def test_what_rows_of_several_turns_share_is_said(words, text, expected, tmp_path):
    plugin = tmp_path / "plugin.py"
    plugin.write_text(text)
    given = ["--rlhf_type", "grpo", "--external_plugins", str(plugin), "--multi_turn_scheduler", *words]
    found = {finding.rule for finding in table.judged(Run(parse(given)))}
    assert found & {"turns-tokenized-again", "shared-turn-without-gradient"} == expected
