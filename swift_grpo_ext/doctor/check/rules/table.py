"""The table that every rule of preflight stands in."""

from __future__ import annotations

from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import RuleTable

SWIFT = "https://github.com/modelscope/ms-swift"

table: RuleTable[Run] = RuleTable()
