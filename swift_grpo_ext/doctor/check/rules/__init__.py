"""The rules of preflight, by subject."""

from swift_grpo_ext.doctor.check.rules import (  # importing a file fills the table, in this order
    data as data,
)
from swift_grpo_ext.doctor.check.rules import (
    deepspeed as deepspeed,
)
from swift_grpo_ext.doctor.check.rules import (
    engine as engine,
)
from swift_grpo_ext.doctor.check.rules import (
    launch as launch,
)
from swift_grpo_ext.doctor.check.rules import (
    learning as learning,
)
from swift_grpo_ext.doctor.check.rules import (
    memory as memory,
)
from swift_grpo_ext.doctor.check.rules.table import table

__all__ = ["table"]
