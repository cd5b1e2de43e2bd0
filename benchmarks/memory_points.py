"""Published figures of GPU memory against the ranges of `swift_grpo_ext.doctor.plan.memory`.

    python benchmarks/memory_points.py            # the table of docs/memory.md
    python benchmarks/memory_points.py --json OUT

A point is a run that somebody published with its GPU memory, as settings (benchmarks/memory_points.json).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from swift_grpo_ext.doctor.plan.catalogue import require_config
from swift_grpo_ext.doctor.plan.memory import memory_range
from swift_grpo_ext.doctor.plan.setting import Machine, ModelShape, Setting, Work
from swift_grpo_ext.doctor.plan.shape import shape_of
from swift_grpo_ext.group.gpu_memory import GIB

POINTS = Path(__file__).with_name("memory_points.json")


@dataclass(frozen=True)
class Point:
    """One published figure beside its range.

    Attributes:
        what: The run in words.
        source: Where it was published.
        said: The figure, as it was said.
        kind: ``measured`` (GiB of a GPU), ``fits`` (it ran on GPUs of that size) or ``oom`` (it did not).
        gib: The figure.
        low: Least that is predicted, GiB.
        high: Most that is predicted, GiB.
        reason: Why the figure is outside, where it is.
        unknown: The part whose range is widest, with its range in GiB.
    """

    what: str
    source: str
    said: str
    kind: str
    gib: float
    low: float
    high: float
    reason: str = ""
    unknown: str = ""

    @property
    def inside(self) -> bool:
        """The range says what was seen."""
        if self.kind == "fits":
            return self.low <= self.gib
        if self.kind == "oom":
            return self.high > self.gib
        rounded = 0.5 if float(self.gib).is_integer() else 0.0  # "35 GiB" is a rounded figure
        return self.low - rounded <= self.gib <= self.high + rounded


def points(path: Path = POINTS) -> list[Point]:
    """Every published figure with its predicted range.

    Args:
        path: The data file: ``models`` (configurations by name) and ``points``.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    return [_point(row, data["models"]) for row in data["points"]]


def _point(row: dict[str, Any], models: dict[str, dict[str, Any]]) -> Point:
    most = Work(**row.get("work", {}))
    machine = Machine(**{"gpus_per_node": 1, **row.get("machine", {})})
    setting = Setting(**{"stage": 0, "rollout": "server", "sleep_level": 0, **row.get("setting", {})})
    shape = _shape(row["model"], json.dumps(models.get(row["model"])))
    needed = memory_range(shape, most, setting, machine, replace(most, **row.get("least", {})))
    supervised = setting.scoring in ("cross_entropy", "liger")
    phases = ("update", "step") if supervised else tuple(needed.phases)
    low = max(needed.low(phase) for phase in phases)
    # What a tool sees holds the allocator's whole blocks; whether a run fails does not depend on them.
    shown = [
        [one for one in needed.phases[name] if row["kind"] == "measured" or not one.returned]
        for name in phases
    ]
    high = max(sum(term.high for term in terms) for terms in shown)
    high = min(high, max(machine.usable, max(map(needed.needed, phases))))
    widest = max((term for terms in shown for term in terms), key=lambda term: term.high - term.low)
    return Point(
        row["what"],
        row["source"],
        row["said"],
        row["kind"],
        row["gib"],
        low / GIB,
        high / GIB,
        row.get("reason", ""),
        f"{widest.name} {widest.low / GIB:.1f} to {widest.high / GIB:.1f}",
    )


@cache
def _shape(model: str, config: str) -> ModelShape:
    return shape_of(json.loads(config) or require_config(model))


def table(found: list[Point]) -> str:
    """The points as a table of Markdown."""
    lines = ["| run | published | predicted, GiB | of that least known | inside |", "|---|---|---|---|---|"]
    for point in found:
        inside = "yes" if point.inside else f"no: {point.reason}"
        span = f"{point.low:.1f} to {point.high:.1f}"
        run = f"[{point.what}]({point.source})"
        lines.append(f"| {run} | {point.said} | {span} | {point.unknown} | {inside} |")
    return "\n".join(lines)


def summary(found: list[Point]) -> str:
    """How many are inside, and how wide the ranges are."""
    inside = sum(point.inside for point in found)
    widths = sorted(point.high / point.low for point in found)
    middle = widths[len(widths) // 2]
    of_grpo = [point.inside for point in found if point.what.startswith("GRPO")]
    grpo = f"of GRPO alone {sum(of_grpo)} of {len(of_grpo)}"
    spread = f"median {middle:.2f}, largest {widths[-1]:.2f}"
    return f"{inside} of {len(found)} inside, {grpo}; most / least: {spread}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = points()
    print(table(found))
    print()
    print(summary(found))
    if arguments.json:
        rows = [{**vars(point), "inside": point.inside} for point in found]
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
