"""This package's own settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest.mock import patch

from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import Problem, Severity
from swift_grpo_ext.registration import check_part_names
from swift_grpo_ext.settings import PREFIX, load_settings


@table.rule(
    "extension-setting",
    Severity.ERROR,
    symptoms=("SettingsError: unknown setting", "UnknownPartError: unknown part"),
    cause="This package reads its settings when the plugin is imported, and takes no unknown name or value.",
)
def _settings(run: Run) -> Iterator[Problem]:
    own = {name: value for name, value in run.environ.items() if name.upper().startswith(PREFIX)}
    if not run.has_plugin or any("$" in value or "`" in value for value in own.values()):
        return
    others = {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
    try:
        with patch.dict(os.environ, {**others, **own}, clear=True):
            check_part_names(load_settings().disable)
    except SwiftGrpoExtError as error:
        yield Problem(error.what, error.where or PREFIX + "DISABLE", error.mend)
