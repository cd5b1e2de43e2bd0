"""Which releases the package supports, and whether those installed fit together, by metadata alone."""

import sys
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from swift_grpo_ext.errors import EnvironmentMismatchError

HOST = "ms-swift"
HOST_RANGE = ">=4.5,<4.7"  # the one home of the range; tests hold pyproject.toml to it
# Releases of the range, beside that of constraints/tested.txt, for which constraints/host-*.txt are kept:
# `make test-hosts` reads this line.
OTHER_HOSTS = "4.5.0 4.5.3"

# Range that each package must lie in, and why. An empty range: any release will do.
REQUIRED: dict[str, tuple[str, str]] = {
    HOST: (
        HOST_RANGE,
        "the framework itself; the names that this package hooks into were checked in these releases",
    ),
    "torch": (">=2.6", "tensors"),
    "torchvision": ("", "image processing; its release must be the one made for the installed torch"),
    "transformers": (">=4.57,<5.20", "models; the upper end is ms-swift's own"),
    "trl": (">=0.26,<1.0", "base class of ms-swift's GRPO trainer"),
    "peft": (">=0.17,<0.21", "LoRA"),
    "accelerate": (">=1.8", "devices and ranks"),
    "qwen-vl-utils": (">=0.0.14", "image resizing of the Qwen templates"),
    "msgspec": (">=0.18", "imported by ms-swift's GRPO code, which does not declare it"),
    "math-verify": (">=0.8", "math rewards"),
    "rapidfuzz": (">=3.9", "edit distances of the text rewards"),
    "scipy": (">=1.11", "matching of boxes and points"),
}
OPTIONAL: dict[str, tuple[str, str]] = {
    "deepspeed": (">=0.18.9", "ZeRO; from 0.19.2 on without the defects that compat fixes or refuses"),
    "vllm": (">=0.11", "fast rollouts on a GPU"),
    "flash-attn": ("", "variable-length attention on a GPU"),
    "megatron-core": (">=0.16.1,<0.17", "training with Megatron"),
    "mcore-bridge": (">=1.6.5,<1.7", "checkpoints and models of Megatron"),
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


def installed_version(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def package_facts() -> list[PackageFact]:
    """Every package that matters, required ones first, each with its problem and fix if it has one."""
    facts = [_compared(name, *REQUIRED[name]) for name in REQUIRED]
    return facts + [_compared(name, *OPTIONAL[name], required=False) for name in OPTIONAL]


def require(*names: str) -> None:
    """Check that each package is installed, in range, and fits the others.

    Raises:
        EnvironmentMismatchError: The first that is not, with what it is needed for and how to install it.
    """
    for name in names:
        fact = _compared(name, *(REQUIRED.get(name) or OPTIONAL[name]))
        if fact.problem:
            raise EnvironmentMismatchError(fact.problem, where=f"needed for {fact.purpose}", fix=fact.fix)


def _compared(name: str, supported: str, purpose: str, *, required: bool = True) -> PackageFact:
    installed = installed_version(name)
    fix = f'{sys.executable} -m pip install "{name}{supported}"'
    problem = ""
    if installed is None:
        problem = f"{name} is not installed" if required else ""
    elif not SpecifierSet(supported).contains(installed, prereleases=True):
        problem = f"{name} {installed} is outside {supported}"
    elif name == "torchvision":
        problem, fix = _torchvision_problem(installed)
    return PackageFact(name, installed, supported, purpose, problem, fix if problem else "")


def _torchvision_problem(installed: str) -> tuple[str, str]:
    """torchvision pins one torch; with another its operators do not load (torchvision::nms)."""
    torch_version = installed_version("torch")
    pins = [Requirement(line) for line in metadata.requires("torchvision") or []]
    wanted = next((pin.specifier for pin in pins if pin.name == "torch"), SpecifierSet())
    if torch_version is None or wanted.contains(torch_version, prereleases=True):
        return "", ""
    return (
        f"torchvision {installed} was built for torch{wanted}, but torch {torch_version} is installed",
        f'{sys.executable} -m pip install --upgrade "torch=={torch_version}" torchvision',
    )
