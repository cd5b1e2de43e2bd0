"""The rules of preflight, by subject; the rows and the rewards that were tried on them are subjects, too."""

from importlib import import_module
from pathlib import Path

from swift_grpo_ext.doctor.check.rules.table import table

for _file in sorted(Path(__file__).parent.glob("[a-z]*.py")):  # importing a file fills the table
    import_module(f"{__name__}.{_file.stem}")

__all__ = ["table"]
