"""This package's own settings."""

from __future__ import annotations

from collections.abc import Iterator

from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import Problem
from swift_grpo_ext.parts import check_disabled
from swift_grpo_ext.settings import PREFIX


@table.on("extension-setting")
def _settings(run: Run) -> Iterator[Problem]:
    try:
        check_disabled(run.settings.disable)
    except SwiftGrpoExtError as error:
        yield Problem(error.what, error.where or PREFIX + "DISABLE", error.fix)
