"""Ranges are what lanes run, and what cannot import them says the same."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from rich.console import Console

from swift_grpo_ext import registration, versions
from swift_grpo_ext.doctor.env import print_environment
from swift_grpo_ext.errors import EnvironmentMismatchError
from swift_grpo_ext.versions import HOST_RANGE, OPTIONAL, OTHER_HOSTS, REQUIRED, SETS, releases_run

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


@pytest.mark.parametrize("name", [name for name, (range_, _) in {**REQUIRED, **OPTIONAL}.items() if range_])
def test_a_range_ends_with_the_releases_that_lanes_run(name):
    supported = SpecifierSet({**REQUIRED, **OPTIONAL}[name][0])
    pinned = [
        found
        for each in SETS
        for found in re.findall(
            rf"^{name}(?:-cpu)?={{2,3}}(\S+)",
            (ROOT / f"constraints/{each}.txt").read_text().replace("_", "-"),
            re.M | re.I,
        )
    ]
    assert set(pinned) == set(releases_run(name))
    assert all(supported.contains(release) for release in pinned)
    lowest, highest = releases_run(name)[0], Version(releases_run(name)[-1])
    capped = f",<{highest.major}.{highest.minor + 1}" if "<" in str(supported) else ""
    assert supported == SpecifierSet(f">={lowest.removesuffix('.0')}{capped}")


def test_extras_ask_for_the_same_ranges():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    for name in ("deepspeed", "vllm"):
        assert Requirement(*extras[name]).specifier == SpecifierSet(OPTIONAL[name][0])


def test_every_set_is_run_by_a_target_or_only_read():
    makefile = (ROOT / "Makefile").read_text()
    for name in set(SETS) - {"read"} - {f"host-{release}" for release in OTHER_HOSTS.split()}:
        assert re.search(rf"\b{name}\b", makefile), name


@pytest.mark.parametrize(
    ("installed", "problem", "tested"),
    [
        ("4.56.2", "transformers 4.56.2 is outside >=4.57.6,<5.20", ""),
        ("4.57.6", "", ""),
        ("5.0.0", "", "tested with 4.57.6 and 5.12.1"),
        ("5.19.3", "", "tested with 5.19.0"),
        ("5.20.0", "transformers 5.20.0 is outside >=4.57.6,<5.20", ""),
        (None, "transformers is not installed", ""),
    ],
)
def test_releases_below_above_and_between(monkeypatch, installed, problem, tested):
    real = versions.installed_version
    monkeypatch.setattr(
        versions, "installed_version", lambda name: installed if name == "transformers" else real(name)
    )
    (fact,) = [fact for fact in versions.package_facts() if fact.name == "transformers"]
    assert (fact.problem, fact.tested) == (problem, tested)
    assert (tested and f"transformers {installed} {tested}" in registration.summary()) or not tested
    console = Console(record=True, width=300)
    assert print_environment(console) is not bool(problem)
    printed = console.export_text()
    assert problem in printed
    assert tested in printed
    if problem:
        assert 'pip install "transformers>=4.57.6,<5.20"' in printed
        with pytest.raises(EnvironmentMismatchError, match=problem.replace(">", ".")):
            versions.require("transformers")


def test_a_build_for_a_device_is_the_release(monkeypatch):
    monkeypatch.setattr(versions, "installed_version", lambda name: "2.8.0+cu128")
    assert versions.between_tested("torch") == []


def test_torch_without_torchvision_is_named(monkeypatch):
    real = versions.installed_version
    monkeypatch.setattr(
        versions, "installed_version", lambda name: None if name == "torchvision" else real(name)
    )
    with pytest.raises(EnvironmentMismatchError, match="torchvision is not installed") as raised:
        versions.require("torchvision")
    assert "pip install" in raised.value.fix


def test_the_dockerfile_is_of_an_image_that_ms_swift_names_and_of_a_set_that_is_run():
    """Parsed, not built: there is no network for it."""
    lines = [
        line for line in (ROOT / "docker/Dockerfile").read_text().splitlines() if not line.startswith("#")
    ]
    assert [line.split()[0] for line in lines] == ["FROM", "COPY", "RUN", "RUN", "WORKDIR"]
    registry, _, tag = lines[0].removeprefix("FROM ").partition(":")
    assert registry.endswith(".cr.aliyuncs.com/modelscope-repo/modelscope")
    of_image = dict(re.findall(r"(py|torch|vllm|swift)(\d[\d.]*)", tag))
    assert of_image["py"] == "312"
    assert of_image["torch"] in releases_run("torch")
    assert of_image["vllm"] in releases_run("vllm")
    pinned = dict(re.findall(r'"([\w-]+)==([\d.]+)"', lines[2]))
    assert set(pinned) == {"ms-swift", "transformers", "torch", "deepspeed"}
    the_set = (ROOT / "constraints/image-5.txt").read_text().replace("_", "-")
    assert all(f"\n{name}=={release}\n" in the_set for name, release in pinned.items())


def test_the_page_has_the_releases_of_each_set():
    page = (ROOT / "docs/environments.md").read_text()
    for line in re.findall(r"^\| `([\w.-]+)\.txt`.*$", page, re.MULTILINE):
        assert line in SETS
    for name in ("tested", "image-4", "image-5", "lowest"):
        (row,) = re.findall(rf"^\| `{name}\.txt`.*$", page, re.MULTILINE)
        text = (ROOT / f"constraints/{name}.txt").read_text()
        for package in ("transformers", "torch", "deepspeed", "trl", "peft", "accelerate"):
            found = re.search(rf"^{package}==(\S+)$", text, re.MULTILINE)
            assert found is None or found[1] in row, (name, package)
