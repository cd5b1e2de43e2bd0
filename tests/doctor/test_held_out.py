"""Launch scripts that were written before the rules were read: false errors, and failures that are found."""

import re
from pathlib import Path

import pytest
import yaml

from swift_grpo_ext.doctor.check import command
from swift_grpo_ext.findings import Severity

TABLE = yaml.safe_load(Path(__file__).with_name("held_out.yaml").read_text(encoding="utf-8"))
PLUGIN = "from swift.rewards import orms\norms['external_r1v_acc'] = orms['accuracy']\n"


@pytest.fixture(autouse=True)
def _plugins(launch_folder):
    for name in ("plugin.py", "examples/train/grpo/plugin/plugin.py"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(PLUGIN)


def verdict(text, gpu_memory):
    Path("train.sh").write_text(text, newline="")
    return command.verdict_of(["train.sh"], row_limit=0, gpu_memory=gpu_memory)


def test_what_runs_raises_no_error(refusals):
    assert len(TABLE["runs"]) + len(TABLE["not_followed"]) >= 85
    wrong = {}
    for name, text in TABLE["runs"].items():
        found = verdict(text, 80)
        findings = [*found.findings, *refusals(found)]
        errors = [one.what for one in findings if one.severity is Severity.ERROR]
        if errors or found.code > 1:
            wrong[name] = (found.code, errors)
    assert wrong == {}


def test_what_fails_is_found(refusals):
    assert len(TABLE["fails"]) >= 60
    missed = {}
    for name, (about, text) in TABLE["fails"].items():
        of_rules = verdict(text, 48)
        if not is_about(about, of_rules.findings):
            findings = [*of_rules.findings, *refusals(of_rules)]
            if not is_about(about, findings):
                missed[name] = [one.what for one in findings]
    assert missed == {}


def is_about(about, findings):
    loud = [one for one in findings if one.severity is not Severity.NOTE]
    return any(re.search(about, f"{one.what} {one.fix} {one.where}") for one in loud)


def test_what_is_not_followed_is_said_and_not_judged():
    for name, entry in TABLE["not_followed"].items():
        text = entry if isinstance(entry, str) else entry[1]
        said = verdict(text, 80)
        assert said.code == command.COULD_NOT_CHECK, name
        assert "which is not followed" in said.findings[0].what, name
        assert "SWIFT_GRPO_EXT_PREFLIGHT=only" in said.findings[0].fix, name


def test_what_a_slip_of_the_shell_leaves_unknown_is_named():
    for name, (gap, text) in TABLE["not_known"].items():
        assert gap in verdict(text, 80).closing.partition("not checked: ")[2], name


def test_a_file_that_the_script_writes_is_not_judged():
    for name, (_, text) in TABLE["written_by_the_script"].items():
        said = verdict(text, 80)
        assert said.code == 0, name
        assert re.search(r"not checked: .*(c\.yaml|ds\.json)", said.closing), (name, said.closing)
