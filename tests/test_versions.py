"""The range of ms-swift has one home, and what cannot import it says the same."""

import re
import subprocess
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from swift_grpo_ext.versions import HOST_RANGE, OTHER_HOSTS, REQUIRED

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", REQUIRED)
def test_what_pip_installs_is_what_a_run_requires(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {line.name: line.specifier for line in map(Requirement, project["dependencies"])}
    assert declared[name] == SpecifierSet(REQUIRED[name][0])


def test_make_runs_the_releases_of_the_range():
    printed = subprocess.run(
        ["make", "--dry-run", "--print-data-base", "help"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    (hosts,) = re.findall(r"^HOSTS :?= (.*)$", printed, re.MULTILINE)
    assert hosts == OTHER_HOSTS
    for release in OTHER_HOSTS.split():
        assert SpecifierSet(HOST_RANGE).contains(release)
        assert (ROOT / f"constraints/host-{release}.txt").is_file()
