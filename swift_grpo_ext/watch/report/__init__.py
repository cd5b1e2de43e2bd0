"""The report of GRPO runs: one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from swift_grpo_ext.errors import MissingExtraError, OutputFolderError
from swift_grpo_ext.watch.report.charts import charts
from swift_grpo_ext.watch.report.images import data_uri, thumbnail
from swift_grpo_ext.watch.report.render import COMPLETIONS, Section, Tile, render
from swift_grpo_ext.watch.report.run import read_run
from swift_grpo_ext.watch.report.verdict import Figure, Verdict, judge

__all__ = ["Figure", "Report", "Section", "Tile", "data_uri", "thumbnail", "write_report"]

COMPARISON = "grpo-comparison"
"""Folder that a comparison of several runs is written to, where the command is called."""


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
    """Write ``report.html`` of the newest GRPO run in an output folder of ms-swift.

    Args:
        output_dir: The ``--output_dir`` of the run, or its version folder; several to compare runs. A run
            may still go on.
        report_dir: Folder to write to; default the run's version folder, or ``grpo-comparison``.
        title: Heading of the page.
        extra_figures: Figures to show before the run's own.
        sections: Sections to add.
        completions: How many of each run to show, about.

    Raises:
        OutputFolderError: There is no GRPO run in the folder, no step of it is logged yet, or the folder to
            write to does not let itself be written to.
        MissingExtraError: jinja2 is not installed.
    """
    if find_spec("jinja2") is None:
        raise MissingExtraError(
            "jinja2 not installed", where="report", fix='pip install "swift-grpo-ext[report]"'
        )
    runs = [read_run(folder) for folder in _several(output_dir)]
    folder = Path(report_dir or (COMPARISON if len(runs) > 1 else runs[0].folder))
    text = render(
        runs,
        charts(runs),
        title=title or _title(len(runs)),
        extra_figures=extra_figures,
        sections=sections,
        completions=completions,
    )
    return Report(_written(folder / "report.html", text), tuple(map(judge, runs)))


def _written(html: Path, text: str) -> Path:
    try:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_bytes(as_utf8(text))
    except OSError as error:
        raise OutputFolderError(
            f"the report cannot be written: {error.strerror}", where=str(html.parent), fix="give another --to"
        ) from None
    return html


def as_utf8(page: str) -> bytes:
    """The bytes of a page; half of a surrogate pair, which JSON can hold and UTF-8 cannot, becomes "?"."""
    return page.encode("utf-8", errors="replace")


def _title(runs: int) -> str:
    return "GRPO run" if runs == 1 else f"{runs} GRPO runs"


def _several(folders: str | Path | Sequence[str | Path]) -> list[str | Path]:
    return [folders] if isinstance(folders, (str, Path)) else list(folders)
