"""Launch commands as people write them: what runs raises no error, what fails is found before it starts."""

import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from swift_grpo_ext.doctor.check import command
from swift_grpo_ext.doctor.check.facts.arguments import parse
from swift_grpo_ext.doctor.plan import models
from swift_grpo_ext.doctor.plan.models import require_config
from swift_grpo_ext.doctor.plan.shape import shape_of
from swift_grpo_ext.findings import Severity

pytestmark = pytest.mark.usefixtures("launch_folder")

TABLE = yaml.safe_load((Path(__file__).parent / "launches.yaml").read_text(encoding="utf-8"))
BASE = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-7B-Instruct --dataset my/data --gradient_accumulation_steps 8 "


def scripts(part):
    """(name, path, text, expected rules) of the entries of one part."""
    for name, entry in TABLE[part].items():
        path, text, rules = "train.sh", entry, []
        if isinstance(entry, list):
            text, *rules = entry
        elif isinstance(entry, dict):
            path, text = entry["path"], entry["text"]
        if part in ("settings", "warned", "broken"):
            text = f"{BASE}{text}"
        filled = text.replace("{GRPO}", TABLE["grpo"]).replace("{ARGS}", TABLE["grpo"].split(" rlhf ")[1])
        yield name, path, filled, rules


def found(path, text, gpu_memory=0):
    Path(path).write_text(text)
    return command.verdict_of([path], row_limit=0, gpu_memory=gpu_memory)


def test_there_are_enough_of_them():
    assert sum(len(TABLE[part]) for part in TABLE if part != "grpo") >= 130


@pytest.mark.parametrize("part", ["wrappers", "expansions", "settings"])
def test_what_runs_raises_no_alarm(part, refusals):
    alarms = {}
    for name, path, text, _ in scripts(part):
        verdict = found(path, text)
        findings = [*verdict.findings, *refusals(verdict)]
        faults = [(one.rule, one.what) for one in findings if one.severity is not Severity.NOTE]
        if faults or verdict.code:
            alarms[name] = (verdict.code, faults or [one.what for one in verdict.findings])
    assert alarms == {}


def test_a_command_that_is_not_followed_is_named_with_the_way_to_check_it():
    for name, path, text, _ in scripts("not_followed"):
        verdict = found(path, text)
        assert verdict.code == command.COULD_NOT_CHECK, name
        assert "SWIFT_GRPO_EXT_PREFLIGHT=only" in verdict.findings[0].fix, name


def test_what_stands_in_a_file_of_the_script_is_not_known():
    for name, path, text, _ in scripts("written_by_the_script"):
        verdict = found(path, text)
        assert (verdict.code, "not checked: options in r.yaml" in verdict.closing) == (0, True), name


def test_what_a_slip_of_the_shell_leaves_unknown_is_named():
    for name, path, text, (gap,) in scripts("not_known"):
        assert gap in found(path, text).closing.partition("not checked: ")[2], name


def test_the_one_process_of_python_is_one_error(refusals):
    text = "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 NPROC_PER_NODE=8 python -m swift.cli.rlhf "
    text += f"{BASE.split(' rlhf ')[1]}--reward_funcs accuracy --gradient_accumulation_steps 1"
    verdict = found("train.sh", text)
    loud = [one.rule for one in verdict.findings if one.severity is not Severity.NOTE]
    assert (loud, refusals(verdict)) == (["ranks-not-started"], [])


def test_what_may_be_meant_is_no_error():
    for name, path, text, _ in scripts("warned"):
        verdict = found(path, text)
        assert verdict.code == 1, (name, verdict.findings)
        texts = [f"{one.what} {one.where} {one.fix}" for one in verdict.findings]
        assert "image" not in " ".join(texts) or "text" not in name


@pytest.mark.parametrize("part", ["failures", "broken"])
def test_what_fails_is_found(part, refusals):
    missed = {}
    for name, path, text, rules in scripts(part):
        verdict = found(path, text, gpu_memory=48)
        findings = [*verdict.findings, *(refusals(verdict) if "host-refuses" in rules else [])]
        loud = [one for one in findings if one.severity is not Severity.NOTE]
        if not {one.rule for one in loud} & set(rules):
            missed[name] = [one.rule for one in loud]
        assert all(one.what and one.fix for one in loud), loud
    assert missed == {}


@pytest.mark.parametrize(
    "words",
    [
        "--fsdp fsdp2",
        "--optim paged_adamw_8bit",
        "--optimizer galore",
        "--freeze_parameters_ratio 0.9",
        "--freeze_parameters model",
        "--trainable_parameters_regex lm_head",
        "--sequence_parallel_size 4",
        "--use_liger_kernel true",
        "--device_map auto",
        "--model Qwen/Qwen2.5-VL-7B-Instruct-AWQ",
    ],
)
def test_memory_that_is_not_counted_is_named_and_not_judged(words):
    full = f"NPROC_PER_NODE=8 {BASE} --reward_funcs accuracy --tuner_type full"
    assert "memory" in {one.rule for one in found("train.sh", full, gpu_memory=24).findings}
    verdict = found("train.sh", f"{full} {words}", gpu_memory=24)
    assert "memory" not in {one.rule for one in verdict.findings}
    assert "not checked: memory with " in verdict.closing


def test_a_model_called_print4_is_not_quantised():
    words = f"NPROC_PER_NODE=8 {BASE} --reward_funcs accuracy --tuner_type full"
    words = words.replace("Qwen/Qwen2.5-VL-7B-Instruct", "acme/print4/Qwen2.5-VL-7B-Instruct")
    assert "quantised weights" not in found("train.sh", words, gpu_memory=24).closing


def test_memory_under_accelerate_is_not_judged(monkeypatch):
    words = f"{BASE} --reward_funcs accuracy --tuner_type full --deepspeed zero2"
    launch = f"accelerate launch --num_processes 8 --config_file a.yaml -m swift.cli.{words[6:]}"
    assert "memory with accelerate launch" in found("train.sh", launch, gpu_memory=24).closing
    installed = f"pip install -U accelerate  # for accelerate\nNPROC_PER_NODE=8 {words}"
    assert "memory" in {one.rule for one in found("train.sh", installed, gpu_memory=4).findings}
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")  # as the process of a preflight sees it
    verdict = command.verdict_of(words.split(), row_limit=0, gpu_memory=24)
    assert "memory with accelerate launch" in verdict.closing


def test_a_file_alone_does_not_say_how_many_processes_are_started(monkeypatch):
    monkeypatch.delenv("NPROC_PER_NODE", raising=False)
    model = "model: Qwen/Qwen2.5-VL-7B-Instruct\nuse_vllm: true\nvllm_mode: colocate\n"
    Path("run.yaml").write_text(
        f"rlhf_type: grpo\n{model}vllm_tensor_parallel_size: 4\nreward_funcs: accuracy\n"
    )
    alone = command.verdict_of(["run.yaml"], row_limit=0)
    assert (alone.code, "the shell that starts it" in alone.closing) == (0, True)
    said = command.verdict_of(["swift", "rlhf", "run.yaml"], row_limit=0)
    assert "vllm-tensor-parallel" in {one.rule for one in said.findings}
    monkeypatch.setenv("NPROC_PER_NODE", "2")
    assert command.verdict_of(["run.yaml"], row_limit=0).code == 2


def test_the_mend_of_uneven_evaluation_is_about_evaluation(refusals):
    text = f"{BASE} --reward_funcs accuracy --val_dataset a/b --per_device_eval_batch_size 3"
    assert [one.fix for one in refusals(found("train.sh", text))] == ["--num_generations_eval 1"]


def test_what_is_not_known_is_named_and_not_judged(capsys):
    for name, what in {
        "rest_of_the_line": "options in $@",
        "extra": "options in $EXTRA_ARGS",
        "from_a_file": "options in what a command prints",
        "branches": "NPROC_PER_NODE",
        "data_of_a_program": "rows.jsonl, which the script may write",
        "config_of_the_script": "options in run.yaml",
        "computed": "--num_generations",
    }.items():
        path, text = next((path, text) for one, path, text, _ in scripts("wrappers") if one == name)
        Path(path).write_text(text)
        assert command.check([path], row_limit=0, quick=True) == 0
        last = capsys.readouterr().out.splitlines()[-1]
        assert last.startswith("no problems found in what could be checked; not checked: ")
        assert what in last


HOST_ROWS = Path(__file__).parents[2] / "benchmarks" / "ms_swift_commands.jsonl"


def test_paths_of_a_script_that_starts_in_a_folder_of_another_machine_are_not_judged():
    text = f"cd /no/such/machine\n{BASE}--reward_funcs accuracy --custom_dataset_info /no/such/info.json"
    verdict = found("train.sh", text.replace("my/data", "rows.jsonl"))
    assert verdict.code == 0
    assert "/no/such/info.json, behind a cd" in verdict.closing
    assert found("train.sh", text.replace("cd /no/such/machine", "date")).code == 2


def test_what_the_rest_of_the_line_may_hold_is_not_missed():
    verdict = found("train.sh", 'swift rlhf --rlhf_type grpo --num_generations 8 --use_vllm true "$@"')
    assert (verdict.code, "not checked: options in" in verdict.closing) == (0, True)


@pytest.mark.parametrize(
    "text",
    [
        f"{BASE}--reward_funcs accuracy --per_device_train_batch_size 99999999999",
        f"{BASE}--reward_funcs accuracy --num_generations 99999999999 --external_plugins $(swift-grpo-ext path)",
        f"NPROC_PER_NODE=99999999999 {BASE}--reward_funcs accuracy --sequence_parallel_size 7",
        f"swift rollout --model x &\nNPROC_PER_NODE=9999999999 {BASE}--reward_funcs accuracy --use_vllm true "
        "--vllm_mode server --vllm_server_host localhost",
    ],
    ids=["batch", "group", "ranks", "server"],
)
def test_a_number_that_nobody_means_ends_the_check_in_a_moment(text):
    assert found("train.sh", text, gpu_memory=80).code != command.COULD_NOT_CHECK


def test_the_examples_of_ms_swift_raise_no_error_that_ms_swift_does_not_confirm():
    """The rows are parts of the examples, so some lack what makes their batches whole; ms-swift says so, too."""
    rows = [json.loads(line) for line in HOST_ROWS.read_text(encoding="utf-8").splitlines()]
    assert len(rows) >= 35
    for row in rows:
        words = [
            "--rlhf_type",
            "grpo",
            "--dataset",
            "my/data",
            "--reward_funcs",
            "accuracy",
            "--tuner_type",
            "lora",
        ]
        words += [
            word for name, value in row["args"].items() for word in (f"--{name}", *shlex.split(str(value)))
        ]
        server = ["--vllm_server_host", "10.0.0.9"] if row["args"].get("vllm_mode") == "server" else []
        environ = "".join(
            f"export {name}={shlex.quote(value)}\n" for name, value in row.get("env", {}).items()
        )
        program = "megatron" if row["engine"].startswith("megatron") else "swift"
        verdict = found("train.sh", f"{environ}{program} rlhf {shlex.join([*words, *server])}\n")
        errors = {one.rule for one in verdict.findings if one.severity is Severity.ERROR}
        assert errors == confirmed(row["args"], int(row.get("env", {}).get("NPROC_PER_NODE", 1)), errors), row


def confirmed(given, ranks, errors):
    """Which of the errors ms-swift's own argument class raises."""
    from swift.rlhf_trainers.args_mixin import GRPOArgumentsMixin
    from swift.rollout import multi_turns

    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations")
    sizes = {name: int(given.get(name, default)) for name, default in zip(names, (1, 1, 8), strict=True)}
    more = {
        name: int(given[name]) if name in given else None
        for name in ("generation_batch_size", "steps_per_generation")
    }
    raised = set()
    try:
        GRPOArgumentsMixin._init_generation_batch_params(SimpleNamespace(world_size=ranks, **sizes, **more))
    except ValueError:
        raised.add("generation-batch")
    if given.get("multi_turn_scheduler", "gym_scheduler") not in multi_turns:
        raised.add("unknown-name")
    return errors & raised


def test_no_error_text_names_an_internal_id_and_each_fault_is_told_once():
    for name, path, text, _ in [*scripts("failures"), *scripts("broken")]:
        loud = [one for one in found(path, text).findings if one.severity is not Severity.NOTE]
        assert len({(one.what, one.where) for one in loud}) == len(loud), name
        ranks = [one.severity.rank for one in loud]
        assert ranks == sorted(ranks)


def test_ms_swift_says_the_same_to_every_setting():
    """Its own parser against ours, on the settings above."""
    from swift import arguments
    from swift.utils.utils import _patch_get_type_hints
    from transformers import HfArgumentParser

    with _patch_get_type_hints():
        real = HfArgumentParser([arguments.RLHFArguments])
    for part in ("settings", "warned"):
        for name, _, text, _ in scripts(part):
            words = shlex.split(text)[2:]
            theirs, _ = real.parse_known_args(words)
            ours = parse(words)
            for key, value in vars(theirs).items():
                expected = getattr(value, "value", value)
                if expected is not None:
                    assert getattr(ours, key) == expected, (name, key)


def test_a_measured_shape_is_kept_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = require_config("Ovis2-1B")
    measured = models.shape_by_config(config)
    (path,) = (tmp_path / "swift-grpo-ext").iterdir()
    monkeypatch.setattr(models, "shape_of", None)
    assert models.shape_by_config(config) == measured == shape_of(config)
    path.write_text("{")
    monkeypatch.setattr(models, "shape_of", shape_of)
    assert models.shape_by_config(config) == measured
