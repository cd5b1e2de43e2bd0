"""The rules of preflight, by subject. Importing this fills the table."""

from importlib import import_module
from pathlib import Path

from swift_grpo_ext.doctor.check.rules.table import table

for _file in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    import_module(f"{__name__}.{_file.stem}")

table.add_written()

__all__ = ["table"]
