"""The report of GRPO runs: one self-contained HTML page. Text of models and datasets is escaped."""

import base64
import hashlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from swift.utils import get_logger

from swift_grpo_ext.errors import MissingExtraError, OutputFolderError
from swift_grpo_ext.version import __version__
from swift_grpo_ext.watch.report.page_data import data_uri, page_data, thumbnail
from swift_grpo_ext.watch.report.run import LoggedRun, read_run
from swift_grpo_ext.watch.report.verdict import Figure, RunVerdict, judge

__all__ = ["Figure", "Section", "Tile", "WrittenReport", "data_uri", "thumbnail", "write_report"]

COMPARISON = "grpo-comparison"  # folder of a comparison of several runs, in the current directory
MOST_BYTES = 1 << 30  # of logged completions to read at the end of a run, while the GPUs wait
COMPLETIONS = 5000  # completions of one run that a page shows by default

_FOLDER = Path(__file__).parent
_SCRIPTS = ("page.js", "summary.js", "groups.js", "curves.js", "gallery.js", "prompts.js", "start.js")

# ms-swift's arguments that shape a run, in the order in which they are shown.
_ARGUMENTS = """
    model dataset reward_funcs reward_weights num_generations per_device_train_batch_size
    gradient_accumulation_steps steps_per_generation num_iterations learning_rate beta epsilon loss_type
    temperature max_completion_length tuner_type freeze_vit torch_dtype use_vllm seed swift_version
"""

logger = get_logger()


@dataclass(frozen=True)
class WrittenReport:
    """The file of a report, and the verdicts on its runs, in order."""

    html: Path
    verdicts: tuple[RunVerdict, ...]


@dataclass(frozen=True)
class Tile:
    """An image with a caption, for sections that a caller adds."""

    image: str | None  # a URL, such as that of `data_uri`
    caption: str
    level: str = ""  # good, warn, bad or "": the frame's colour


@dataclass(frozen=True)
class Section:
    """A section that a caller adds to the report, such as held-out images before and after training."""

    title: str
    intro: str
    tiles: tuple[Tile, ...]


def write_report(
    output_dir: str | Path | Sequence[str | Path],
    report_dir: str | Path | None = None,
    *,
    title: str = "",
    extra_figures: Sequence[Figure] = (),
    sections: Sequence[Section] = (),
    completions: int = COMPLETIONS,
) -> WrittenReport:
    """Write ``report.html`` of the newest GRPO run in an output folder of ms-swift; it may still be running.

    Several folders compare runs. ``report_dir`` is by default the run's version folder, or
    ``grpo-comparison`` for several; about ``completions`` completions of each run are shown.

    Raises:
        OutputFolderError: The folder holds no GRPO run, no logged step yet, or is not writable.
        MissingExtraError: jinja2 is not installed.
    """
    folders = [output_dir] if isinstance(output_dir, (str, Path)) else output_dir
    runs = [read_run(folder) for folder in folders]
    verdicts = tuple(map(judge, runs))
    names = ["/".join(run.folder.resolve().parts[-2:]) for run in runs]
    script = "\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    text = _renderer()(
        title=title or ("GRPO run" if len(runs) == 1 else f"{len(runs)} GRPO runs"),
        version=__version__,
        runs=list(zip(names, verdicts, runs, strict=True)),
        extra_figures=extra_figures,
        sections=sections,
        arguments=_arguments(runs),
        total=sum(len(run.completions) for run in runs),
        data=page_data(runs, names, completions),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    folder = Path(report_dir or (COMPARISON if len(runs) > 1 else runs[0].folder))
    return WrittenReport(_written(folder / "report.html", text), verdicts)


def _written(html: Path, text: str) -> Path:
    try:
        html.parent.mkdir(parents=True, exist_ok=True)
        # Half of a surrogate pair, which is valid in JSON but not in UTF-8, becomes "?".
        html.write_bytes(text.encode("utf-8", errors="replace"))
    except OSError as error:
        raise OutputFolderError(
            f"the report cannot be written: {error.strerror}",
            where=str(html.parent),
            fix="give another --to",
        ) from None
    return html


def report_at_end(folder: str | Path) -> None:
    """Write the report of a run into its own folder; failures are only logged: the run has succeeded."""
    again = f"swift-grpo-ext report {shlex.quote(str(folder))}"
    try:
        completions = Path(folder) / "completions.jsonl"
        if completions.is_file() and completions.stat().st_size > MOST_BYTES:
            logger.info(
                f"swift-grpo-ext [report] too much was logged to write the report automatically: {again}"
            )
            return
        report = write_report(folder)
        logger.info(f"swift-grpo-ext [report] {report.verdicts[0].headline} {report.html}")
    except Exception as error:  # the model is trained: an error of the report must not hide that
        logger.warning(
            f"swift-grpo-ext [report] not written, {type(error).__name__}: {error}; later: {again}"
        )


def _renderer() -> Callable[..., str]:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError(
            "jinja2 not installed", where="report", fix='pip install "swift-grpo-ext[report]"'
        ) from None
    environment = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.html.j2").render


def _arguments(runs: Sequence[LoggedRun]) -> list[tuple[str, list[str], bool]]:
    """Name, value in each run, and True if the runs differ in it."""
    rows = []
    for name in _ARGUMENTS.split():
        values = [_typed(run.arguments.get(name)) for run in runs]
        if any(values):
            rows.append((name, values, len(set(values)) > 1))
    return rows


def _typed(value: object) -> str:
    """An argument as it was typed; empty if it was not given."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str("" if value is None else value)
