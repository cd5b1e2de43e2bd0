"""The rules of preflight, by subject: of the launch, of the rows, of the rewards as they did on them."""

from importlib import import_module
from pathlib import Path

from swift_grpo_ext.doctor.check.rules.rows import data_rules
from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.rules.trials import trial_rules

for _file in sorted(Path(__file__).parent.glob("[a-z]*.py")):  # importing a file fills the tables
    import_module(f"{__name__}.{_file.stem}")

__all__ = ["data_rules", "table", "trial_rules"]
