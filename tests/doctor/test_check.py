"""Broken launch scripts are diagnosed before a model is loaded; good ones raise no alarm."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from swift_grpo_ext.doctor.check import command
from swift_grpo_ext.doctor.check.arguments import Arguments
from swift_grpo_ext.doctor.check.launch import PLUGIN, read_script
from swift_grpo_ext.doctor.check.rules import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Severity, exit_code

SCRIPTS = Path(__file__).parent / "scripts"
BROKEN = sorted((SCRIPTS / "broken").glob("*.sh"))
GOOD = sorted((SCRIPTS / "good").glob("*.sh"))


def diagnosed(path):
    return command.findings_of(command.run_of_script(path, gpu_memory=80))


def test_there_are_enough_of_both():
    assert len(BROKEN) >= 25
    assert len(GOOD) >= 10


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_a_broken_script_gets_its_diagnosis(path):
    expected = re.search(r"^# expect: (\S+)$", path.read_text(), re.MULTILINE)[1]
    found = diagnosed(path)
    mine = [finding for finding in found if finding.rule == expected]
    assert mine, [finding.rule for finding in found]
    assert all(finding.what and finding.mend for finding in mine)
    assert exit_code(mine) >= 1


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_script_raises_no_alarm(path):
    found = [finding for finding in diagnosed(path) if finding.severity is not Severity.NOTE]
    assert found == []


def test_valid_values_are_listed():
    found = diagnosed(SCRIPTS / "broken" / "groups_do_not_fit.sh")
    assert any("[2, 4, 8]" in finding.mend for finding in found)


def test_the_reported_72b_run_gets_every_reason():
    rules = {finding.rule for finding in diagnosed(SCRIPTS / "broken" / "qwen_72b_reported.sh")}
    assert {"memory", "vllm-model-len"} <= rules


def test_every_rule_has_symptom_and_cause_and_its_own_name():
    names = [rule.id for rule in table.rules]
    assert len(names) == len(set(names))
    assert all(rule.symptoms and rule.cause for rule in table.rules)


def test_json_and_exit_codes(capsys):
    assert command.check([str(SCRIPTS / "broken" / "greedy.sh")], as_json=True) == 2
    found = json.loads(capsys.readouterr().out)
    assert found[0]["severity"] == "error"
    assert {"rule", "what", "where", "mend", "reports"} <= set(found[0])
    assert command.check([str(SCRIPTS / "good" / "7b_lora_colocate.sh")]) == 0
    assert "nothing to mend" in capsys.readouterr().out


def test_a_script_is_read_and_not_run(tmp_path):
    launch = read_script(
        f"touch {tmp_path}/ran\nexport A=1\nB=$A swift rlhf --x '$(touch {tmp_path}/ran)' --y ${{C:-7}} \\\n"
        f'  --external_plugins "$(swift-grpo-ext path)"\n'
    )
    rlhf = launch.first("rlhf")
    assert rlhf.environ == {"A": "1", "B": "1"}
    assert rlhf.arguments[-1] == PLUGIN
    assert "7" in rlhf.arguments
    assert not (tmp_path / "ran").exists()


VERSIONS = {
    "trl-too-old": {"trl": "0.25.1"},
    "msgspec-missing": {"msgspec": None},
    "torchvision-of-another-torch": {"torch": "2.6.0", "torchvision": "0.29.0"},
    "seed-worker": {"transformers": "4.53.0", "trl": "0.18.0"},
    "zero3-loses-its-trace": {"deepspeed": "0.18.9", "transformers": "5.19.0"},
    "h20-cublas": {"nvidia-cublas-cu12": "12.1.3.1"},
}


@pytest.mark.parametrize("rule", VERSIONS)
def test_releases_that_do_not_fit_are_named(rule):
    values = {
        "tuner_type": "lora",
        "external_plugins": [],
        "use_vllm": False,
        "ds3_gather_for_generation": True,
        "deepspeed": {"zero_optimization": {"stage": 3}},
    }
    run = Run(Arguments(values, frozenset()), versions=VERSIONS[rule], device="NVIDIA H20")
    look = next(one for one in table.rules if one.id == rule)
    assert list(look.findings(run))
    good = {"trl": "0.29.1", "msgspec": "0.22", "torch": "2.14.0", "torchvision": "0.29.0"} | {
        "transformers": "5.19.0",
        "deepspeed": "0.19.8",
        "nvidia-cublas-cu12": "12.8.0",
    }
    assert not list(look.findings(Run(run.arguments, versions=good, device="NVIDIA H20")))


def test_the_command_line_takes_the_host_arguments():
    words = ["--rlhf_type", "grpo", "--model", "Qwen2.5-VL-3B", "--num_generations", "1", "--top_k", "-1"]
    result = subprocess.run(
        [sys.executable, "-m", "swift_grpo_ext.cli", "check", *words, "--json"],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert result.returncode == 2, result.stderr[-2000:]
    rules = {finding["rule"] for finding in json.loads(result.stdout)}
    assert {"num-generations-one", "no-reward", "no-dataset"} <= rules
