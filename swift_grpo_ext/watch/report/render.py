"""The report as one self-contained HTML page. Everything that a model or dataset wrote is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_grpo_ext.version import __version__
from swift_grpo_ext.watch.report.gallery import Card, card, shown_groups
from swift_grpo_ext.watch.report.images import data_uri
from swift_grpo_ext.watch.report.plots import PLOTS
from swift_grpo_ext.watch.report.run import Run
from swift_grpo_ext.watch.report.verdict import Figure, figures, judge

# The host's arguments that shape a run, in the order in which they are shown.
_ARGUMENTS = (
    "model",
    "dataset",
    "reward_funcs",
    "reward_weights",
    "num_generations",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "num_iterations",
    "learning_rate",
    "beta",
    "epsilon",
    "loss_type",
    "temperature",
    "max_completion_length",
    "tuner_type",
    "freeze_vit",
    "torch_dtype",
    "use_vllm",
    "seed",
    "swift_version",
)


@dataclass(frozen=True)
class Tile:
    """An image with a caption and one word on it, for sections that a caller adds.

    Attributes:
        image: Address of the image, such as `data_uri` gives; None if there is none.
        caption: Text below.
        level: ``good``, ``warn``, ``bad`` or "" gives the frame's colour.
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
    run: Run,
    plots: Mapping[str, bytes],
    *,
    title: str,
    extra_figures: Sequence[Figure] = (),
    sections: Sequence[Section] = (),
) -> str:
    """HTML of the report.

    Args:
        run: The run.
        plots: PNG bytes by plot name.
        title: Heading of the page.
        extra_figures: Shown before the run's own.
        sections: Shown between the curves and the gallery.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title=title,
        version=__version__,
        folder=str(run.folder),
        verdict=judge(run),
        figures=[*extra_figures, *figures(run)],
        curves=[(PLOTS[name].title, data_uri(plots[name])) for name in PLOTS if name in plots],
        sections=sections,
        steps=_by_step([card(group) for group in shown_groups(run)]),
        arguments=[
            (name, _words(run.arguments[name])) for name in _ARGUMENTS if run.arguments.get(name) is not None
        ],
    )


def _by_step(cards: Sequence[Card]) -> dict[int, list[Card]]:
    grouped: dict[int, list[Card]] = {}
    for each in cards:
        grouped.setdefault(each.step, []).append(each)
    return grouped


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
