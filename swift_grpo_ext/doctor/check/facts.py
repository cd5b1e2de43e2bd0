"""Everything that a rule may ask: the launch, and what its rows and rewards show."""

from dataclasses import dataclass
from functools import cached_property

from swift_grpo_ext.doctor.check import rewards, rows
from swift_grpo_ext.doctor.check.run import Run


@dataclass(frozen=True)
class Facts(Run):
    """A run with its data; rows are read, and rewards are tried on them, at the first question."""

    row_limit: int = 32  # rows of each dataset that are looked at; 0 for none

    @cached_property
    def data(self) -> rows.Data:
        """The first rows of its datasets.

        Raises:
            NotKnownError: where they are is not known.
        """
        return rows.read(self.as_written, self.row_limit)

    @cached_property
    def trials(self) -> rewards.Trials:
        """What became of its rewards on rows of the training data.

        Raises:
            NotKnownError: which rewards there are, or where the rows are, is not known.
        """
        return rewards.tried(self.as_written, self.data.training)
