"""A run's variables, and this process's for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from swift_grpo_ext.doctor.check.arguments import NotKnown
from swift_grpo_ext.doctor.check.words import is_known, shown


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Exactly these variables; what was there comes back, whatever is set inside."""
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(values)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class Environ(Mapping[str, str]):
    """The variables that a run sees; asking for one that is not known raises `NotKnown`."""

    def __init__(self, values: Mapping[str, str], *, set_by: str = "") -> None:
        self.values_as_written, self.set_by = dict(values), set_by

    def __getitem__(self, name: str) -> str:
        value = self.values_as_written.get(name)
        if value is None and self.set_by:
            raise NotKnown(f"what {self.set_by} sets")
        if value is not None and not is_known(value):
            raise NotKnown(f"{name} ({shown(value)})")
        return self.values_as_written[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_as_written)

    def __len__(self) -> int:
        return len(self.values_as_written)
