"""The report of a GRPO run: one self-contained HTML page, and its plots as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from swift_grpo_ext.errors import MissingExtraError
from swift_grpo_ext.watch.report.images import data_uri, thumbnail
from swift_grpo_ext.watch.report.plots import draw_plots
from swift_grpo_ext.watch.report.render import Section, Tile, render
from swift_grpo_ext.watch.report.run import read_run
from swift_grpo_ext.watch.report.samples_plot import draw_samples
from swift_grpo_ext.watch.report.verdict import Figure, Verdict, judge

__all__ = ["Figure", "Report", "Section", "Tile", "data_uri", "thumbnail", "write_report"]


@dataclass(frozen=True)
class Report:
    """Where a report lies, and its verdict."""

    html: Path
    plots: tuple[Path, ...]
    verdict: Verdict


def write_report(
    output_dir: str | Path,
    report_dir: str | Path | None = None,
    *,
    title: str = "GRPO run",
    extra_figures: Sequence[Figure] = (),
    sections: Sequence[Section] = (),
) -> Report:
    """Write ``report.html`` and ``plots/*.png`` of the newest GRPO run in a folder of the host.

    Args:
        output_dir: The ``--output_dir`` of the run, or its version folder. The run may still go on.
        report_dir: Folder to write to; default the run's version folder.
        title: Heading of the page.
        extra_figures: Figures to show before the run's own.
        sections: Sections to add.

    Raises:
        OutputFolderError: There is no GRPO run in the folder, or no step of it is logged yet.
        MissingExtraError: jinja2 or matplotlib is not installed.
    """
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{' and '.join(missing)} not installed",
            where="report",
            mend='pip install "swift-grpo-ext[report]"',
        )
    run = read_run(output_dir)
    folder = Path(report_dir) if report_dir is not None else run.folder
    plots = draw_plots(run)
    samples = draw_samples(run)
    page = render(run, plots, title=title, extra_figures=extra_figures, sections=sections)
    if samples is not None:
        plots["samples"] = samples
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    paths = [folder / "plots" / f"{name}.png" for name in plots]
    for path, png in zip(paths, plots.values(), strict=True):
        path.write_bytes(png)
    html = folder / "report.html"
    html.write_text(page, encoding="utf-8")
    return Report(html, tuple(paths), judge(run))
