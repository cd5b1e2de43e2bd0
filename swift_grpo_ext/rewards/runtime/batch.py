"""A batch of completions with their columns, as the host hands it to a reward function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from swift_grpo_ext.rewards.contract import Columns


@dataclass(frozen=True)
class Batch:
    """Completions and everything that came with them."""

    completions: Sequence[str]
    columns: Mapping[str, Sequence[Any]]  # column name to one value per completion
    shared: Mapping[str, Any]  # what does not belong to single completions, such as ``trainer_state``

    @classmethod
    def of(cls, completions: Sequence[str], arguments: Mapping[str, Any]) -> Batch:
        """Sort the host's keyword arguments into columns and the rest."""
        size = len(completions)
        columns = {
            name: value
            for name, value in arguments.items()
            if isinstance(value, (list, tuple)) and len(value) == size
        }
        return cls(completions, columns, {name: arguments[name] for name in arguments if name not in columns})

    def __len__(self) -> int:
        return len(self.completions)

    def row(self, index: int, names: Sequence[str] | None = None) -> Columns:
        """The columns of one completion, all or those of these names."""
        wanted = self.columns if names is None else [name for name in names if name in self.columns]
        return {name: self.columns[name][index] for name in wanted}

    def select(self, indices: Sequence[int]) -> Batch:
        """The batch of these completions."""
        if len(indices) == len(self):
            return self
        chosen = {name: [values[index] for index in indices] for name, values in self.columns.items()}
        return replace(self, completions=[self.completions[index] for index in indices], columns=chosen)

    def with_column(self, name: str, values: Sequence[object]) -> Batch:
        """The batch with a column added or replaced."""
        return replace(self, columns={**self.columns, name: values})
