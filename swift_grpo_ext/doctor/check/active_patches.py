"""Which parts of this package a run turns on, and which patches will be in place."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from swift_grpo_ext.compat.patch import Patch, Target, signature_of
from swift_grpo_ext.compat.registry import patches
from swift_grpo_ext.doctor.check.words import PLUGIN
from swift_grpo_ext.parts import PARTS
from swift_grpo_ext.versions import installed_version

_ALL = frozenset(PARTS)
_FILES = {"all.py": _ALL, **{f"ext_{part}.py": frozenset({part}) for part in PARTS}}
_MOST_BYTES = 2**20


def parts_of(files: Sequence[str], environ: Mapping[str, str]) -> frozenset[str]:
    """Parts that these plugin files turn on, without those in ``SWIFT_GRPO_EXT_DISABLE``."""
    found = frozenset[str]().union(*(_parts(file) for file in files))
    return found - set(_words(environ.get("SWIFT_GRPO_EXT_DISABLE", "")))


def _parts(file: str) -> frozenset[str]:
    if file == PLUGIN:
        return _ALL
    path = Path(file).expanduser()
    if not path.is_file():
        # A script for another machine: our files are known by name, the common one by its folder too.
        ours = path.name in _FILES and (path.name != "all.py" or path.parent.name == "plugins")
        return _FILES[path.name] if ours else frozenset()
    if path.stat().st_size > _MOST_BYTES or "swift_grpo_ext" not in path.read_text(errors="replace"):
        return frozenset()
    return _FILES.get(path.name, _ALL)


def applies(patch_id: str, versions: Mapping[str, str | None], environ: Mapping[str, str]) -> bool:
    """Whether a patch will be put on: not turned off, made for these releases, its target as it knows it."""
    patch = patches().get(patch_id)
    if patch is None:
        return False
    names = {f"compat.{patch_id}", f"compat.{patch.defect.id}"}
    if names & set(_words(environ.get("SWIFT_GRPO_EXT_DISABLE", ""))):
        return False
    if patch.defect.absent_because({name: versions.get(name) for name in patch.defect.affected}):
        return False
    return _target_is_known(patch) if _are_installed(patch, versions) else True


def _are_installed(patch: Patch, versions: Mapping[str, str | None]) -> bool:
    return all(versions.get(name) == installed_version(name) for name in patch.defect.affected)


def _target_is_known(patch: Patch) -> bool:
    if find_spec(patch.target.split(".", 1)[0].split(":", 1)[0]) is None:
        return False
    try:
        return signature_of(inspect.unwrap(Target(patch.target).get())) == patch.fingerprint
    except (ImportError, AttributeError, TypeError):
        return False


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
