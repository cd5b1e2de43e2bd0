"""The report that a run leaves behind when it ends."""

from __future__ import annotations

import shlex
from pathlib import Path

from swift.utils import get_logger

from swift_grpo_ext.watch.report import write_report

logger = get_logger()

MOST_BYTES = 1 << 30
"""Of logged completions, that are read while the GPUs wait."""


def report_at_end(folder: str | Path) -> None:
    """Write the report of a run into its own folder. Whatever goes wrong, the run has ended well.

    Args:
        folder: The run's version folder.
    """
    again = f"swift-grpo-ext report {shlex.quote(str(folder))}"
    try:
        completions = Path(folder) / "completions.jsonl"
        if completions.is_file() and completions.stat().st_size > MOST_BYTES:
            logger.info(f"swift-grpo-ext [report] much was logged, so it is not written by itself: {again}")
            return
        report = write_report(folder)
    except Exception as error:  # the model is trained: no fault of a page may hide that
        logger.warning(
            f"swift-grpo-ext [report] not written, {type(error).__name__}: {error}; later: {again}"
        )
    else:
        logger.info(f"swift-grpo-ext [report] {report.verdict.headline} {report.html}")
