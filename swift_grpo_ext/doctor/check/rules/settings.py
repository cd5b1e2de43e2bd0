"""This package's own settings."""

from __future__ import annotations

from collections.abc import Iterator

from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import Problem, Severity
from swift_grpo_ext.parts import check_disabled
from swift_grpo_ext.settings import PREFIX


@table.rule(
    "extension-setting",
    Severity.ERROR,
    symptoms=("SettingsError: unknown setting", "UnknownPartError: unknown part"),
    cause="This package reads its settings when the plugin is imported, and takes no unknown name or value.",
)
def _settings(run: Run) -> Iterator[Problem]:
    try:
        check_disabled(run.settings.disable)
    except SwiftGrpoExtError as error:
        yield Problem(error.what, error.where or PREFIX + "DISABLE", error.fix)
