"""The report as one self-contained HTML page. Everything that a model or dataset wrote is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from swift_grpo_ext.version import __version__
from swift_grpo_ext.watch.report.charts import charts
from swift_grpo_ext.watch.report.page_data import page_data
from swift_grpo_ext.watch.report.run import Run
from swift_grpo_ext.watch.report.verdict import Figure, figures, judge

if TYPE_CHECKING:
    from jinja2 import Template

COMPLETIONS = 5000  # completions of one run that a page shows unless more are asked for

_FOLDER = Path(__file__).parent
_SCRIPTS = ("page.js", "curves.js", "gallery.js", "start.js")

# ms-swift's arguments that shape a run, in the order in which they are shown.
_ARGUMENTS = """
    model dataset reward_funcs reward_weights num_generations per_device_train_batch_size
    gradient_accumulation_steps steps_per_generation num_iterations learning_rate beta epsilon loss_type
    temperature max_completion_length tuner_type freeze_vit torch_dtype use_vllm seed swift_version
"""


@dataclass(frozen=True)
class Tile:
    """An image (an address such as `data_uri` gives) with a caption, for sections that a caller adds.

    `level` is ``good``, ``warn``, ``bad`` or "", which gives the frame's colour.
    """

    image: str | None
    caption: str
    level: str = ""


@dataclass(frozen=True)
class Section:
    """A section that a caller adds to the report, such as held-out images before and after training."""

    title: str
    intro: str
    tiles: tuple[Tile, ...]


def render(
    runs: Sequence[Run],
    *,
    title: str,
    extra_figures: Sequence[Figure],
    sections: Sequence[Section],
    completions: int,
) -> str:
    """HTML of the report of a run, or of several to compare; see `write_report`."""
    from markupsafe import Markup

    script = "\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    names = run_names(runs)
    return _template().render(
        title=title,
        version=__version__,
        runs=[_shown(name, run) for name, run in zip(names, runs, strict=True)],
        extra_figures=extra_figures,
        sections=sections,
        arguments=_arguments(runs),
        logged=any(run.groups for run in runs),
        total=sum(len(group.samples) for run in runs for group in run.groups),
        data=Markup(page_data(runs, names, charts(runs), completions)),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _shown(name: str, run: Run) -> dict[str, object]:
    return {
        "name": name,
        "folder": str(run.folder),
        "verdict": judge(run),
        "figures": figures(run),
        "gains": run.gains,
    }


def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")


def run_names(runs: Sequence[Run]) -> list[str]:
    """Short names that tell the runs apart: their folders without what all have in common."""
    parts = [run.folder.resolve().parts for run in runs]
    if len(runs) == 1:
        return ["/".join(parts[0][-2:])]
    start = next((i for i, column in enumerate(zip(*parts, strict=False)) if len(set(column)) > 1), -1)
    names = ["/".join(part[start:]) for part in parts]
    return [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, 1)]


def _arguments(runs: Sequence[Run]) -> list[tuple[str, list[str], bool]]:
    """Name, value in each run, and whether the runs differ in it."""
    rows = []
    for name in _ARGUMENTS.split():
        values = [_words(run.arguments.get(name)) for run in runs]
        if any(values):
            rows.append((name, values, len(set(values)) > 1))
    return rows


def _words(value: object) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
