"""GRPO on vision-language models, by several trainers: one command, one page of JSON that others can add to.

    python benchmarks/public.py --size mini --repeats 3 --json public.json
    python benchmarks/public.py --other .swift_grpo_ext/envs/trl/bin/python --json public.json
    python benchmarks/public.py --table public.json other.json   # pages of several machines, one table

The update phase of ms-swift, of this package and of TRL (where installed, ``--other`` names a Python with
another release), on the same random weights, the same pixels, completions drawn with the same seed, and the
same rewards. Rows of trainers that are measured elsewhere, such as verl, have the same fields (`FIELDS`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import peers
import torch
import update_phase
from bench_measure import machine
from bench_models import PATCH
from bench_operations import Case

PAGE = 1  # version of the page's form
PACKAGES = ("torch", "transformers", "ms-swift", "trl", "verl", "peft", "deepspeed", "flash-attn", "vllm")
# Of each row: its name, unit and meaning.
FIELDS = {
    "seconds": "s, median of the repeats: one update phase of one group",
    "fastest": "s, of the repeats",
    "slowest": "s, of the repeats",
    "phases": "s in the tower, in the language model without and with gradients, and in all the rest",
    "completion_tokens_per_second": "tokens of completions that were learned from",
    "pixels_per_second": "pixels of the images of all completions",
    "tokens": "tokens that went through the language model, all passes",
    "tower_calls": "times that the vision tower ran",
    "peak_bytes": "bytes: weights, and what the step takes above them",
    "grad_norm": "norm of the gradient: equal where the work is the same",
}


def versions() -> dict[str, str]:
    """Releases of what is installed, by package."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def row_of(measured: dict[str, Any], case: Case, patch: int) -> dict[str, Any]:
    """One trainer's row of the page."""
    seconds = measured["seconds"]
    height, width = case.grid
    known = sum(measured["phases"].values())
    rest = measured["all_seconds"][-1] - known
    return {
        "seconds": seconds,
        "fastest": min(measured["all_seconds"]),
        "slowest": max(measured["all_seconds"]),
        "phases": {**measured["phases"], "rest": rest},
        "completion_tokens_per_second": case.group * case.completion / seconds,
        "pixels_per_second": case.group * height * width * patch**2 / seconds,
        **{name: measured[name] for name in ("tokens", "tower_calls", "peak_bytes", "grad_norm")},
    }


def page_of(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The whole page of this machine."""
    case = update_phase.case_of(asked)
    patch = PATCH[asked.family]
    measured = peers.all_rows(asked, folder)
    names = {"stock": f"ms-swift {version('ms-swift')}", "ext": "ours"}
    return {
        "page": PAGE,
        "fields": FIELDS,
        "family": asked.family,
        "size": asked.size,
        "case": case.__dict__,
        "machine": machine(torch.device(asked.device)),
        "versions": versions(),
        "rows": {names.get(name, name): row_of(row, case, patch) for name, row in measured.items()},
    }


def table(pages: list[dict[str, Any]]) -> str:
    """Pages as one Markdown table, slowest trainer of each first."""
    lines = [
        "| trainer | s (fastest to slowest) | completion tokens/s | Mpixel/s | tokens | tower calls | "
        "peak memory | gradient norm |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for page in pages:
        for name, row in sorted(page["rows"].items(), key=lambda pair: -pair[1]["seconds"]):
            cells = [
                name,
                f"{row['seconds']:.2f} ({row['fastest']:.2f} to {row['slowest']:.2f})",
                f"{row['completion_tokens_per_second']:.0f}",
                f"{row['pixels_per_second'] / 1e6:.2f}",
                row["tokens"],
                row["tower_calls"],
                f"{row['peak_bytes'] / 2**20:.0f} MiB",
                f"{row['grad_norm']:.5g}",
            ]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    if "--table" in sys.argv:
        paths = sys.argv[sys.argv.index("--table") + 1 :]
        print(table([json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]))
        return
    asked = update_phase.arguments_of_benchmark(__doc__, peers.options_of_peers)
    with tempfile.TemporaryDirectory() as folder:
        page = page_of(asked, Path(folder))
    if asked.json:
        asked.json.write_text(json.dumps(page, indent=1) + "\n", encoding="utf-8")
    print(table([page]))


if __name__ == "__main__":
    main()
