"""Everything that is to be measured on a GPU, in at most nine minutes, as one table, one JSON and one plot.

    make bench-gpu                                    # python benchmarks/gpu.py --to output/bench-gpu
    python benchmarks/gpu.py --dry-run --to FOLDER    # seconds on a CPU: that it runs, not how fast

First the pure functions at published shapes in bf16 with every attention backend, hybrid layers included
(`core.py`), then the update phase through ms-swift's trainer at the 3B shape where ms-swift is installed
(`update_phase.py`). Each is a process of its own, and what was measured stays when one fails; in each row the
log-probs are held against the limits of the self-check at run time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIMIT = 540  # seconds in all
AIM = 0.85  # of the bound by operations
CORE = ("3b:1000:128", "3b-hybrid:1000:128", "3b:1000:300", "7b:2500:300")
BACKENDS = "sdpa,varlen,flex,dense"
UPDATE = "--size 3b --group 8 --image-tokens 1000 --completion 128 --beta 0.04 --device cuda --repeats 3"


@dataclass(frozen=True)
class Part:
    """One process: its name, the words behind Python, and the file that it writes."""

    name: str
    words: tuple[str, ...]
    json: Path


def parts(folder: Path, dry: bool) -> list[Part]:
    """What is to be run, the most wanted first."""
    shape = ("--group", "2", "--repeats", "1") if dry else ("--group", "8", "--repeats", "3")
    kind = ("--device", "cpu", "--dtype", "bfloat16") if dry else ("--device", "cuda")
    cases = ("tiny:16:8", "tiny-hybrid:16:8") if dry else CORE
    backends = "sdpa,dense" if dry else BACKENDS
    wanted = [",".join(cases)] if dry else cases  # on a GPU one that fails takes no other along
    found = []
    for number, case in enumerate(wanted):
        out = folder / f"core-{number}.json"
        chosen = ("--cases", case, "--backends", backends, "--json", str(out))
        found.append(Part(f"core {case}", (str(HERE / "core.py"), *kind, *shape, *chosen), out))
    if not dry and find_spec("swift"):
        out = folder / "update.json"
        words = (str(HERE / "update_phase.py"), *UPDATE.split(), "--json", str(out))
        found.insert(1, Part("update phase 3b", words, out))
    return found


def run(part: Part, seconds: float) -> str:
    """Run one part, and say why it gave nothing, or not all; empty if it did."""
    if seconds <= 0:
        return "no time left"
    try:
        done = subprocess.run([sys.executable, *part.words], capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"ended after {seconds:.0f} s"
    lines = (done.stderr or done.stdout).strip().splitlines()
    return "" if done.returncode == 0 else lines[-1] if lines else f"exit status {done.returncode}"


def rows_of(part: Part) -> list[dict[str, Any]]:
    """What a part has measured, also one that was ended."""
    if not part.json.is_file():
        return []
    found = json.loads(part.json.read_text(encoding="utf-8"))
    if "rows" in found:
        return [{"part": "core", **row} for row in found["rows"]]
    return [{"part": "update phase", "self_check": "passes", **found, **found["case"]}]


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown; a row that is short of the aim has its share in brackets."""
    lines = [
        "| | model | P | C | backend | stock | ours | ratio | of the bound | peak memory | log-probs "
        "| self-check |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        share = row["of_bound"]
        of_bound = "" if share is None else f"{share:.0%}" if share >= AIM else f"({share:.0%})"
        cells = [
            row["part"],
            row["size"],
            row["image_tokens"] + row["text_tokens"],
            row["completion"],
            row["backend"],
            f"{row['stock_seconds']:.3f} s",
            f"{row['ext_seconds']:.3f} s",
            f"{row['ratio']:.2f}",
            of_bound,
            f"{row['peak_memory_ratio']:.2f}",
            f"{row['logp_max_diff']:.1e}",
            row["self_check"],
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], out: Path) -> None:
    """Times faster than stock, a bar for each row; a line is the bound by operations."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.4 * len(rows) + 1), layout="constrained")
    names = [f"{row['part']} {row['size']} C {row['completion']} {row['backend']}" for row in rows]
    axes.barh(names, [row["ratio"] for row in rows])
    for number, row in enumerate(rows):
        if row["bound"]:
            axes.plot([row["bound"]] * 2, [number - 0.4, number + 0.4], color="black")
    axes.set_xlabel("times faster than stock (line: bound by operations)")
    axes.invert_yaxis()
    figure.savefig(out, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=Path("output/bench-gpu"))
    parser.add_argument("--dry-run", action="store_true", help="tiny models on a CPU")
    asked = parser.parse_args()
    asked.to.mkdir(parents=True, exist_ok=True)
    end, rows, missing = time.monotonic() + LIMIT - 20, [], {}
    for part in parts(asked.to, asked.dry_run):
        part.json.unlink(missing_ok=True)
        why = run(part, end - time.monotonic())
        if why:
            missing[part.name] = why
        rows += rows_of(part)
        print(f"{part.name}: {why or 'done'}", flush=True)
    result = {"rows": rows, "missing": missing, "dry_run": asked.dry_run}
    (asked.to / "gpu.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if rows and find_spec("matplotlib"):
        plot(rows, asked.to / "gpu.png")
    print(table(rows))
    return int(bool(missing) or any(row["self_check"] != "passes" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
