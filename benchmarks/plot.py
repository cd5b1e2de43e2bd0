"""A plot of how many times faster a step is, from the JSON files of the other benchmarks.

    python benchmarks/plot.py OUT.png update_phase_*.json

Left against completions of a prompt (G), right against prompt over completion tokens (P/C), each at the
other's most frequent value; a hollow mark is the bound by operations where the file gives one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mode
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

LABELS = {"qwen2_5_vl": "Qwen2.5-VL", "ovis2": "Ovis2"}


def read(path: Path) -> dict[str, Any]:
    """One benchmark's figures, with the axes of the plot."""
    found = json.loads(path.read_text(encoding="utf-8"))
    case = found["case"]
    prompt = case["image_tokens"] + case["text_tokens"]
    kind = "whole step" if "phases" in found else "update phase"
    kind += ", LoRA" if case.get("lora") else ""
    return {
        "group": case["group"],
        "share": prompt / case["completion"],
        "ratio": found["ratio"],
        "bound": found.get("bound"),
        "label": f"{LABELS[found['family']]} {found['size']}, {kind}",
    }


def draw(rows: list[dict[str, Any]], out: Path) -> None:
    """Write the plot.

    Args:
        rows: What `read` found.
        out: PNG file.
    """
    figure, both = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    axes = (
        ("group", "share", "completions of a prompt (G)"),
        ("share", "group", "prompt / completion tokens (P/C)"),
    )
    labels = sorted({row["label"] for row in rows})
    for panel, (key, other, name) in zip(both, axes, strict=True):
        usual = mode(row[other] for row in rows)
        for number, label in enumerate(labels):
            chosen = [row for row in rows if row["label"] == label and row[other] == usual]
            chosen.sort(key=lambda row: row[key])
            values = [row[key] for row in chosen]
            panel.plot(values, [row["ratio"] for row in chosen], "o", color=f"C{number}", label=label)
            bounds = [(row[key], row["bound"]) for row in chosen if row["bound"]]
            if bounds:
                panel.plot(*zip(*bounds, strict=True), "o", mfc="none", color=f"C{number}", alpha=0.6)
        panel.axhline(1, color="grey", linewidth=0.8)
        panel.set_xlabel(f"{name}\n{'P/C' if other == 'share' else 'G'} = {usual:.3g}")
        panel.set_ylim(bottom=0)
    both[0].set_ylabel("times faster than stock")
    both[0].legend(fontsize="small")
    figure.savefig(out, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("json", type=Path, nargs="+")
    asked = parser.parse_args()
    draw([read(path) for path in asked.json], asked.out)


if __name__ == "__main__":
    main()
