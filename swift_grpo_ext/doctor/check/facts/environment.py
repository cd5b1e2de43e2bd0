"""A run's variables, and which parts and patches of this package it turns on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from swift_grpo_ext.doctor.check.unknown import PLUGIN, Unknown, Word
from swift_grpo_ext.findings import NotKnownError
from swift_grpo_ext.parts import PARTS

_ALL = frozenset(PARTS)
_FILES = {"all.py": _ALL, **{f"ext_{part}.py": frozenset({part}) for part in PARTS}}
_MOST_BYTES = 2**20


class Environ(Mapping[str, Any]):
    """The variables that a run sees, as text; `Unknown` where the launch takes one from somewhere else.

    ``set_by`` names what may set any variable: then a missing variable is unknown, too.
    """

    def __init__(self, values: Mapping[str, Word], *, set_by: str = "") -> None:
        self._values = dict(values)
        self._set_by = set_by

    def __getitem__(self, name: str) -> Any:
        value = self._values.get(name)
        if value is None and self._set_by:
            return Unknown(f"variables of {self._set_by}")
        return Unknown(name) if isinstance(value, Unknown) else self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def number(environ: Mapping[str, Any], name: str, default: int = 1) -> int:
    """A variable's value as a whole number of at least 1; the default if it is not set.

    Raises:
        NotKnownError: it is not a whole number.
    """
    text = (environ.get(name) or "").strip()
    if text and not text.isdecimal():
        raise NotKnownError(name)
    return max(1, int(text[:20])) if text else default


def devices(environ: Mapping[str, str]) -> list[str]:
    """Visible GPUs by number; empty if the variable is not set, or has other names than numbers."""
    names = [name.strip() for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return names if all(name.isdecimal() for name in names) else []


@dataclass(frozen=True)
class Plugin:
    """A plugin file of a run."""

    name: str  # as on the command line
    path: Path | None  # None if it is not on this machine

    @cached_property
    def text(self) -> str:
        """The file's text; empty if it is missing, or too large to be written by hand."""
        readable = self.path and self.path.is_file() and self.path.stat().st_size <= _MOST_BYTES
        return self.path.read_text(encoding="utf-8", errors="replace") if self.path and readable else ""

    @property
    def of_the_user(self) -> bool:
        """True if it is not ours: then it may register any name."""
        return self.name != PLUGIN and Path(self.name).name not in _FILES

    @property
    def parts(self) -> frozenset[str]:
        """Parts of this package that it turns on."""
        name = Path(self.name).name
        if self.path is None:
            # A script for another machine: recognize our files by name, all.py also by its folder.
            is_ours = name != "all.py" or Path(self.name).parent.name == "plugins"
            return _ALL if self.name == PLUGIN else _FILES.get(name, frozenset()) if is_ours else frozenset()
        return _FILES.get(name, _ALL) if "swift_grpo_ext" in self.text else frozenset()


def disabled(environ: Mapping[str, str]) -> set[str]:
    """Parts, features and patches that ``SWIFT_GRPO_EXT_DISABLE`` names."""
    return {word.strip() for word in environ.get("SWIFT_GRPO_EXT_DISABLE", "").split(",")}
