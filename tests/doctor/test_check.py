"""Broken launch scripts are diagnosed before a model is loaded; good ones raise no alarm."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from swift_grpo_ext.doctor.check import command, inputs
from swift_grpo_ext.doctor.check.facts import model
from swift_grpo_ext.doctor.check.script import read_script
from swift_grpo_ext.doctor.check.unknown import PLUGIN, Unknown
from swift_grpo_ext.findings import Severity, exit_code

SCRIPTS = Path(__file__).parent / "scripts"
TABLE = yaml.safe_load(Path(__file__).with_name("broken.yaml").read_text(encoding="utf-8"))
GOOD = sorted((SCRIPTS / "good").glob("*.sh"))


INTERNAL = re.compile(r"\b[A-D]\d{1,2}\b|\bF\d{1,2}\b")  # names of defects that users do not know


def changed(base, change):
    """A command of a base's variables and options with others; without those behind the word ``without``."""
    change, _, without = change.partition("without")
    others = parts(change)
    gone = {name for name, _ in others} | set(without.split())
    texts = [text for name, text in parts(base) if name not in gone] + [text for _, text in others]
    environ = [text for text in texts if not text.startswith("--")]
    options = [text for text in texts if text.startswith("--")]
    return " ".join([*environ, "swift rlhf", *options])


def parts(texts):
    """(name, text) of each variable and each option."""
    each = [text.strip() for text in re.split(r" (?=--|[A-Z_]+=)", f" {texts}") if text.strip()]
    return [(re.split(r"[= ]", text)[0], text) for text in each]


def broken():
    """(name, rule, text of the script) of each fault."""
    for name, (rule, text) in TABLE["whole"].items():
        yield name, rule, text
    for base in ("colocate", "transformers"):
        for name, (rule, change) in TABLE[base].items():
            yield name, rule, changed(TABLE["base"][base], change)


BROKEN = {name: (rule, text) for name, rule, text in broken()}
REFUSED = [name for name, (rule, _) in BROKEN.items() if rule == "host-refuses"]


@pytest.fixture
def script(tmp_path):
    """A file with the text of a fault, in a folder beside the data."""
    (tmp_path / "data").symlink_to(SCRIPTS / "data")
    (tmp_path / "broken").mkdir()

    def write(name):
        path = tmp_path / "broken" / f"{name}.sh"
        path.write_text(f"#!/usr/bin/env bash\n{BROKEN[name][1]}\n", newline="")
        return path

    return write


def diagnosed(path):
    return command.findings_of(replace(inputs.runs_of_script(path)[0], gpu_memory=80))


def test_there_are_enough_of_both():
    assert len(BROKEN) >= 76
    assert len(GOOD) >= 10


@pytest.mark.parametrize("name", sorted(set(BROKEN) - set(REFUSED)))
def test_a_broken_script_gets_its_diagnosis(name, script):
    expected = BROKEN[name][0]
    found = diagnosed(script(name))
    for one in found:
        assert not INTERNAL.search(f"{one.what} {one.fix}".replace("H20", "")), one
    mine = [finding for finding in found if finding.rule == expected]
    assert mine, [finding.rule for finding in found]
    assert all(finding.what and finding.fix for finding in mine)
    assert exit_code(mine) >= 1


def test_what_ms_swift_refuses_is_found_with_the_cure(script, refusals):
    missed = {}
    for name in REFUSED:
        verdict = command.verdict_of([str(script(name))], row_limit=0)
        findings = refusals(verdict)
        if not findings or any("leave it out" in one.fix or "documentation" in one.fix for one in findings):
            missed[name] = [(one.what, one.fix) for one in (*verdict.findings, *findings)]
    assert missed == {}
    assert len(REFUSED) >= 10


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_script_raises_no_alarm(path):
    found = [finding for finding in diagnosed(path) if finding.severity is not Severity.NOTE]
    assert found == []


def test_valid_values_are_listed(script, refusals):
    found = refusals(command.verdict_of([str(script("groups_do_not_fit"))], row_limit=0))
    assert any("[2, 4, 8]" in finding.what and finding.where == "--num_generations" for finding in found)


def test_the_reported_72b_run_gets_every_reason(script):
    rules = {finding.rule for finding in diagnosed(script("qwen_72b_reported"))}
    assert {"memory", "vllm-model-len"} <= rules


def test_json_and_exit_codes(capsys, script):
    assert command.check([str(script("bad_choice"))], as_json=True, quick=True) == 2
    found = json.loads(capsys.readouterr().out)
    assert found[0]["severity"] == "error"
    assert {"rule", "what", "where", "fix", "reports"} <= set(found[0])
    assert command.check([str(SCRIPTS / "good" / "7b_lora_colocate.sh")], quick=True) == 0
    assert "no problems found in what could be checked" in capsys.readouterr().out


def test_a_script_is_read_and_not_run(tmp_path):
    launch = read_script(
        f"touch {tmp_path}/ran\nexport A=1\nB=$A swift rlhf --x '$(touch {tmp_path}/ran)' --y ${{C:-7}} \\\n"
        f'  --external_plugins "$(swift-grpo-ext path)"\n'
    )
    (rlhf,) = launch.commands
    assert rlhf.environ == {"A": "1", "B": "1"}
    assert rlhf.words[-1] == PLUGIN
    assert "7" in rlhf.words
    assert not (tmp_path / "ran").exists()


def test_the_command_line_takes_the_host_arguments(digits):
    words = [
        "--dataset",
        str(digits.train),
        "--rlhf_type",
        "grpo",
        "--model",
        "Qwen/Qwen2.5-VL-3B-Instruct",
        "--num_generations",
        "1",
        "--top_k",
        "-1",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "swift_grpo_ext.cli", "check", *words, "--json"],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert result.returncode == 2, result.stderr[-2000:]
    assert not result.stderr
    rules = {finding["rule"] for finding in json.loads(result.stdout)}
    assert {"host-refuses", "no-reward"} <= rules


def test_the_words_may_begin_with_the_command_itself(capsys):
    words = ["--rlhf_type", "grpo", "--model", "Qwen/Qwen2.5-VL-3B-Instruct", "--train_type", "lora"]
    first = command.check(words, as_json=True, quick=True), capsys.readouterr().out
    assert first == (
        command.check(["swift", "rlhf", *words], as_json=True, quick=True),
        capsys.readouterr().out,
    )


def test_a_configuration_file_is_read_as_the_host_reads_it(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text(
        "rlhf_type: grpo\nmodel: Qwen2.5-VL-7B\nuse_vllm: true\nvllm_mode: colocate\nvllm_tensor_parallel_size: 3\n"
        "ENV:\n  NPROC_PER_NODE: 8\n"
    )
    assert command.check([str(path)], as_json=True, quick=True) == 2
    assert "8 ranks cannot be cut into tensor-parallel groups of 3" in capsys.readouterr().out
    command.check(["--config", str(path)], as_json=True, quick=True)
    assert "swift rlhf run.yaml" in capsys.readouterr().out


def test_pixels_are_found_wherever_the_host_takes_them():
    for words, environ in ((["--max_pixels", "602112"], {}), (["--seed", "1"], {"MAX_PIXELS": "602112"})):
        run = inputs.run_of(words, environ=environ)
        assert (model.limits_pixels(run), model.max_pixels(run)) == (True, 602112)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to check"),
        (["no_such.sh"], "no such script"),
        (["no_such.yaml"], "cannot be read"),
    ],
)
def test_what_cannot_be_checked_is_said_in_one_line(words, message, capsys):
    assert command.check(words) == command.COULD_NOT_CHECK
    first, fix = capsys.readouterr().out.splitlines()
    assert message in first
    assert fix.startswith("        -> ")
    assert command.check(words, as_json=True) == command.COULD_NOT_CHECK
    assert message in json.loads(capsys.readouterr().out)[0]["what"]


def test_a_script_without_the_command_could_not_be_checked(tmp_path, capsys):
    path = tmp_path / "sft.sh"
    for text in ("swift sft --model x\n", "megatron sft --model x\n"):
        path.write_text(text)
        assert command.check([str(path)]) == command.COULD_NOT_CHECK
        assert "no swift rlhf command" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "rule", "fix"),
    [
        (["--num_generation", "8"], "args-refused", "--num_generations"),
        (["--per_device_train_batchsize", "8"], "args-refused", "--per_device_train_batch_size"),
        (["--save", "out"], "args-refused", "--output_dir"),
        (["--multi_turn_func", "mine"], "args-refused", "--multi_turn_scheduler"),
        (["--max_steps", "many"], "args-refused", "--max_steps INT"),
        (["--model"], "args-refused", "--model STR"),
        (["–model", "x"], "args-refused", "--model"),
        (["--use_vllm", "true", "stray"], "args-refused", "quote"),
        (["--num_generations", Unknown("$N")], "not-known-here", ""),
        (["--deepspeed", "zero33"], "deepspeed-unreadable", "--deepspeed zero3"),
        (["--multi_turn_scheduler", "sudoku"], "unknown-name", "register it in --external_plugins"),
    ],
)
def test_spellings(words, rule, fix):
    found = command.findings_of(inputs.run_of(["--rlhf_type", "grpo", *words], environ={}))
    assert any(one.rule == rule and fix in one.fix for one in found), [(one.rule, one.fix) for one in found]


@pytest.mark.parametrize(
    ("program", "lenient", "unknown"),
    [
        ("megatron", "--use_ray", [Severity.WARNING]),
        ("swift", "--use_ray", [None]),
        ("swift", "--ignore_args_error", []),
    ],
)
def test_an_unknown_option_is_a_warning_where_ray_s_driver_goes_on_without_it(program, lenient, unknown):
    words = ["--rlhf_type", "grpo", lenient, "true", "--train_type", "lora", "--sav", "a", "--seed", "b"]
    refusals = inputs.run_of([program, "rlhf", *words], environ={}).arguments.refusals
    assert [one.severity for one in refusals if one.where == "--train_type"] == unknown
    others = [one for one in refusals if one.where != "--train_type"]
    assert {one.where: one.severity for one in others} == {"--sav": None, "--seed": None}
    assert any("ambiguous option: --sav" in one.what for one in others)


@pytest.mark.parametrize("lenient", ["--use_ray", "--ignore_args_error"])
def test_an_unknown_option_is_no_error_where_it_is_not_known_whether_it_is_passed_over(lenient):
    words = ["--rlhf_type", "grpo", lenient, Unknown("$X"), "--train_type", "lora"]
    refusals = inputs.run_of(["megatron", "rlhf", *words], environ={}).arguments.refusals
    assert all(one.severity is Severity.WARNING for one in refusals)


@pytest.mark.parametrize(
    ("words", "ranks", "is_megatron"),
    [
        ("swift rlhf", 1, False),
        ("torchrun --nproc_per_node 2 --nnodes 3 -m swift.cli.rlhf", 6, False),
        ("env NPROC_PER_NODE=4 megatron rlhf", 4, True),
        ("python -m swift.cli._megatron.rlhf", 1, True),
    ],
)
def test_the_words_may_be_a_whole_command(words, ranks, is_megatron, monkeypatch):
    monkeypatch.delenv("NPROC_PER_NODE", raising=False)
    (run,) = inputs.runs([*words.split(), "--rlhf_type", "grpo"])
    assert (run.ranks, run.megatron, run.arguments.refusals) == (ranks, is_megatron, ())


def test_a_start_loads_nothing_that_a_quick_check_does_not_need(tmp_path):
    (tmp_path / "train.sh").write_text("swift rlhf --rlhf_type grpo --model a/b --reward_funcs accuracy\n")
    code = "import sys; from swift_grpo_ext.cli import app; app(standalone_mode=False); print(*sys.modules)"
    words = [sys.executable, "-c", code, "check", "--quick", str(tmp_path / "train.sh")]
    *_, loaded = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"asyncio", "PIL", "unittest", "torch", "numpy", "yaml"}.isdisjoint(loaded.split())


def test_other_kinds_of_training_are_not_judged_by_these_rules():
    found = command.findings_of(
        inputs.run_of(["--rlhf_type", "dpo", "--model", "Qwen/Qwen2.5-VL-3B-Instruct"], environ={})
    )
    assert [one.rule for one in found if one.severity is not Severity.NOTE] == []


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("Makefile", "train:\n\tswift rlhf --rlhf_type grpo\n", "only scripts of bash are read"),
        ("train.py", "import swift\n", "only scripts of bash are read"),
        ("train.fish", "swift rlhf --rlhf_type grpo\n", "only scripts of bash are read"),
        ("job.yaml", "apiVersion: batch/v1\nkind: Job\n", "a manifest, not a table of arguments"),
        (
            "train.sh",
            "ssh node swift rlhf --a 1\n",
            "another program, script or file may start one, which is not followed",
        ),
        ("train.sh", "swift rlhf --a 'x\n", "not plain bash"),
    ],
)
def test_what_is_not_read_is_named_with_the_way_to_check_it(name, text, what, tmp_path, capsys):
    (tmp_path / name).write_text(text)
    assert command.check([str(tmp_path / name)]) == command.COULD_NOT_CHECK
    first, fix = capsys.readouterr().out.splitlines()
    assert what in first
    assert "SWIFT_GRPO_EXT_PREFLIGHT=only" in fix


def test_an_option_behind_a_configuration_file_takes_the_place_of_the_one_in_it(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("rlhf_type: grpo\nlearning_rate: 1.0e-5\nnum-generations: 4\n")
    arguments = inputs.run_of(
        [str(path), "--learning-rate", "1e-6", "--num_generations=8"], environ={}
    ).arguments
    assert (arguments.learning_rate, arguments.num_generations) == (1e-6, 8)


def test_ranks_that_are_not_exported_are_one_rank(tmp_path):
    path = tmp_path / "train.sh"
    path.write_text("NPROC_PER_NODE=8\nNNODES=2\nswift rlhf --rlhf_type grpo\n")
    assert inputs.runs_of_script(path)[0].ranks == 1
    path.write_text("export NPROC_PER_NODE=8\nNNODES=2 swift rlhf --rlhf_type grpo\n")
    assert inputs.runs_of_script(path)[0].ranks == 16
