"""The report of GRPO runs: one self-contained HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from swift.utils import get_logger

from swift_grpo_ext.errors import MissingExtraError, OutputFolderError
from swift_grpo_ext.watch.report.page_data import data_uri, thumbnail
from swift_grpo_ext.watch.report.render import COMPLETIONS, Section, Tile, render
from swift_grpo_ext.watch.report.run import read_run
from swift_grpo_ext.watch.report.verdict import Figure, Verdict, judge

__all__ = ["Figure", "Report", "Section", "Tile", "data_uri", "thumbnail", "write_report"]

COMPARISON = "grpo-comparison"
"""Folder that a comparison of several runs is written to, where the command is called."""
MOST_BYTES = 1 << 30  # of logged completions, that are read at the end of a run while the GPUs wait

logger = get_logger()


@dataclass(frozen=True)
class Report:
    """Where a report lies, and the verdicts on its runs, in order."""

    html: Path
    verdicts: tuple[Verdict, ...]

    @property
    def verdict(self) -> Verdict:
        """That on the first run."""
        return self.verdicts[0]


def write_report(
    output_dir: str | Path | Sequence[str | Path],
    report_dir: str | Path | None = None,
    *,
    title: str = "",
    extra_figures: Sequence[Figure] = (),
    sections: Sequence[Section] = (),
    completions: int = COMPLETIONS,
) -> Report:
    """Write ``report.html`` of the newest GRPO run in an output folder of ms-swift, which may still go on.

    ``output_dir`` is the run's ``--output_dir`` or its version folder; several compare runs. ``report_dir``
    is by default the run's version folder, or ``grpo-comparison``. ``completions`` of each run, about, are
    shown.

    Raises OutputFolderError: There is no GRPO run, no step of it is logged yet, or the folder is not
    writable.
    """
    if find_spec("jinja2") is None:
        raise MissingExtraError(
            "jinja2 not installed", where="report", fix='pip install "swift-grpo-ext[report]"'
        )
    folders = [output_dir] if isinstance(output_dir, (str, Path)) else output_dir
    runs = [read_run(each) for each in folders]
    folder = Path(report_dir or (COMPARISON if len(runs) > 1 else runs[0].folder))
    text = render(
        runs,
        title=title or ("GRPO run" if len(runs) == 1 else f"{len(runs)} GRPO runs"),
        extra_figures=extra_figures,
        sections=sections,
        completions=completions,
    )
    return Report(_written(folder / "report.html", text), tuple(map(judge, runs)))


def _written(html: Path, text: str) -> Path:
    try:
        html.parent.mkdir(parents=True, exist_ok=True)
        # Half of a surrogate pair, which JSON can hold and UTF-8 cannot, becomes "?".
        html.write_bytes(text.encode("utf-8", errors="replace"))
    except OSError as error:
        raise OutputFolderError(
            f"the report cannot be written: {error.strerror}", where=str(html.parent), fix="give another --to"
        ) from None
    return html


def report_at_end(folder: str | Path) -> None:
    """Write the report of a run into its own folder; whatever goes wrong, the run has ended well."""
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
