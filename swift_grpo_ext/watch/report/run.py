"""One GRPO run as data: its logged steps, arguments, completions and evaluations."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from swift_grpo_ext.errors import OutputFolderError
from swift_grpo_ext.watch.held_out import Evaluation, read_evaluations
from swift_grpo_ext.watch.journal import GAINS, newest_version, read_completions, read_logging

T = TypeVar("T")
Series = dict[int, float]  # one logged figure over the run, by optimizer step, in order
Logged = dict[str, Any]  # with ``step``, an optimizer step; everything else is unchecked
Completion = Logged  # a row of completions.jsonl


@dataclass(frozen=True)
class LoggedRun:
    """A run as stored in its version folder, finished or not."""

    folder: Path
    records: tuple[dict[str, Any], ...]  # logged training steps; ``record["step"]`` is the optimizer step
    completions: tuple[Completion, ...]  # logged in training; empty if the run did not log completions
    arguments: dict[str, Any] = field(default_factory=dict)  # ms-swift's, if args.json can be read
    evaluated: int = 0  # completions logged in evaluation
    gains: tuple[str, ...] = ()  # lines of gains.json: features that were on, or off with the reason
    held_out: tuple[Evaluation, ...] = ()  # evaluations on held-out rows, in order

    @property
    def resumed_from(self) -> Path | None:
        """The checkpoint that the run was resumed from; None for a fresh start."""
        checkpoint = self.arguments.get("resume_from_checkpoint")
        return Path(checkpoint) if isinstance(checkpoint, str) and checkpoint else None

    def series(self, name: str) -> Series:
        """The logged metric of that name; empty if it was never logged."""
        return {r["step"]: float(r[name]) for r in self.records if isinstance(r.get(name), (int, float))}

    def finite(self, name: str) -> Series:
        """The part of the series that is neither NaN nor infinite."""
        return {step: value for step, value in self.series(name).items() if math.isfinite(value)}

    @cached_property
    def reward_names(self) -> list[str]:
        """Names of the reward functions."""
        logged = (name for record in self.records for name in record)
        means = (name for name in logged if name.startswith("rewards/") and name.endswith("/mean"))
        return list(dict.fromkeys(name.split("/")[1] for name in means))

    @cached_property
    def rewards_of_prompts(self) -> dict[str, list[float]]:
        """Summed rewards of each prompt's completions."""
        prompts: dict[str, list[float]] = {}
        for row in self.completions:
            total = sum(
                value for name in self.reward_names if isinstance(value := row.get(name), (int, float))
            )
            prompts.setdefault(prompt_of(row), []).append(total)
        return prompts


def prompt_of(row: Completion) -> str:
    """Key of a completion's prompt: its text, its images and its gold."""
    return str([row.get(name) for name in ("prompt", "images", "gold")])


def read_run(output_dir: str | Path) -> LoggedRun:
    """The newest GRPO run in an output folder; after a resume into a new folder, only the part since.

    Raises:
        OutputFolderError: The folder holds no GRPO run, or one that has not logged a step yet.
    """
    folder = newest_version(output_dir)
    steps = _since_resumed(_training_steps(read_logging(folder)))
    if not steps:
        raise OutputFolderError(
            "no GRPO step has been logged", where=str(folder), fix="wait for the first step of the run"
        )
    rows = read_completions(folder) if (folder / "completions.jsonl").is_file() else []
    sampled = [{**row, "step": whole(row.get("step"))} for row in rows if row.get("split") != "eval"]
    return LoggedRun(
        folder,
        tuple({record["step"]: record for record in steps}.values()),
        tuple(_since_resumed(sampled)),
        _object(folder / "args.json"),
        evaluated=len(rows) - len(sampled),
        gains=read_gains(folder),
        held_out=tuple(read_evaluations(folder)),
    )


def _training_steps(records: Sequence[dict[str, object]]) -> Iterable[dict[str, object]]:
    """Steps of a GRPO run; steps that reuse a rollout have no metrics of one."""
    if not any("completions/mean_length" in record for record in records):
        return
    steps = (record for record in records if "completions/mean_length" in record or "loss" in record)
    for number, record in enumerate(steps, start=1):
        step = str(record.get("global_step/max_steps", number)).split("/")[0]
        yield {**record, "step": whole(step)}


def _since_resumed(logged: Iterable[Logged]) -> list[Logged]:
    """Logged entries without those that a run resumed in the same folder has replaced."""
    kept: list[Logged] = []
    for entry in logged:
        if kept and entry["step"] < kept[-1]["step"]:
            kept = [earlier for earlier in kept if earlier["step"] < entry["step"]]
        kept.append(entry)
    return kept


def read_gains(folder: Path) -> tuple[str, ...]:
    """Lines for the features in ``gains.json``, which the trainer writes."""
    rows = _as(dict, _object(folder / GAINS).get("gains"))
    return tuple(_gain(name, row) for name, row in rows.items() if isinstance(row, dict))


def _gain(name: str, row: dict[str, object]) -> str:
    why = f": {row['why']}" if row.get("why") else ""
    fix = f" (to change it: {row['fix']})" if row.get("fix") else ""
    return f"{name} {row.get('state')}{why}{fix}"


def _object(path: Path) -> dict[str, object]:
    """The object in a JSON file; empty if the file is missing or damaged."""
    try:
        return _as(dict, json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return {}


def _as(kind: type[T], value: object) -> T:
    """The value if it is of the type; else an empty value of that type."""
    return value if isinstance(value, kind) else kind()


def whole(value: object) -> int:
    """A whole number as a run logged it; 0 for anything else."""
    try:
        return int(value) if isinstance(value, (int, float, str)) else 0
    except (ValueError, OverflowError):
        return 0
