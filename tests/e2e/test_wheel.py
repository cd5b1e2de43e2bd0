"""The wheel, installed in an environment of its own beside ms-swift, trains through the host's command."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from swift_grpo_ext import testing

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment that sees this one's packages, except for the editable swift-grpo-ext."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, timeout=120, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=60)
    python = folder / "venv/bin/python"
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    # Folders named in a .pth file do not get their own .pth files read, so the editable install stays unseen.
    # Nor does setuptools' own, without which Python 3.12 has no distutils: DeepSpeed imports it.
    seen = [folder for folder in sys.path if folder.endswith("site-packages")]
    shim = "import _distutils_hack; _distutils_hack.add_shim()"
    (packages / "host.pth").write_text("\n".join([*seen, shim]) + "\n")
    (wheel,) = folder.glob("*.whl")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel]
    subprocess.run(install, check=True, timeout=120, capture_output=True)
    return folder


def test_the_source_distribution_holds_the_package_and_nothing_else(tmp_path):
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT]
    subprocess.run(build, check=True, timeout=120, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = [Path(*Path(name).parts[1:]) for name in files.getnames()]
    assert {name.parts[0] for name in names} == {
        *("swift_grpo_ext", "plugins", "constraints", "pyproject.toml", "PKG-INFO", ".gitignore", "LICENSE"),
        *("README.md", "README.zh-CN.md", "CHANGELOG.md"),
    }
    assert {name.name for name in names if name.parts[0] == "plugins"} == {
        path.name for path in (ROOT / "plugins").glob("*.py")
    }


def run(environment, *command, **variables):
    # A path given to these tests would hide the wheel.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [environment / "venv/bin/python", *command],
        cwd=environment,
        env={**inherited, **testing.cpu_environment(), **variables},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_path_lies_in_the_installed_wheel(environment):
    result = run(environment, "-m", "swift_grpo_ext.cli", "path")
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).is_relative_to(environment / "venv")


def test_the_wheel_trains_through_swift_rlhf(environment, tiny_qwen, digits):
    plugin = run(environment, "-m", "swift_grpo_ext.cli", "path").stdout.strip()
    arguments = testing.grpo_arguments(
        tiny_qwen, digits.train, environment / "output", external_plugins=plugin, reward_funcs="ext_format"
    )
    result = run(environment, "-m", "swift.cli.main", "rlhf", *arguments)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert result.stderr.count("swift-grpo-ext 0") == 2  # the one line
    assert len([row for row in testing.read_logging(environment / "output") if "loss" in row]) == 2
