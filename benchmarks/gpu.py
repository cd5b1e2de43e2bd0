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
LIMIT = 520  # seconds in all
AIM = 0.85  # of the bound by operations
BACKENDS = "sdpa,varlen,dense"
CORE = {  # SIZE:IMAGE_TOKENS:COMPLETION, ways of attention, repeats
    "3b:1000:128": (BACKENDS, 3),
    "3b-hybrid:1000:128": (BACKENDS, 3),
    "3b:1000:300": (BACKENDS, 3),
    "7b:2500:300": ("sdpa,varlen", 2),
}
UPDATE = "--size 3b --group 8 --image-tokens 1000 --completion 128 --beta 0.04 --device cuda --repeats 3"
WAITS = "--size tiny --group 8 --image-tokens 64 --completion 16 --beta 0.04 --device cuda"  # as tests/device


@dataclass(frozen=True)
class Part:
    """One process: its name, its script and words, and the file that it writes."""

    name: str
    script: str
    words: tuple[str, ...]
    json: Path

    @classmethod
    def of(cls, folder: Path, name: str, script: str, words: str) -> Part:
        """One that writes to a file of the folder with the part's name."""
        path = folder / f"{name.replace(' ', '-').replace(':', '-')}.json"
        return cls(name, script, (*words.split(), "--json", str(path)), path)


def parts(folder: Path, dry: bool) -> list[Part]:
    """What is to be run, the most wanted first."""
    if dry:
        words = "--device cpu --dtype bfloat16 --group 2 --repeats 1 --backends sdpa,dense"
        cases = "tiny:16:8,tiny-hybrid:16:8"
        return [Part.of(folder, "core", "core.py", f"{words} --cases {cases}")]
    core = [
        Part.of(
            folder,
            f"core {case}",
            "core.py",
            f"--device cuda --group 8 --cases {case} --backends {backends} --repeats {repeats}",
        )
        for case, (backends, repeats) in CORE.items()
    ]
    through = [
        Part.of(folder, "update full", "update_phase.py", UPDATE),
        Part.of(folder, "update lora", "update_phase.py", f"{UPDATE} --tuner lora"),
        Part.of(folder, "waits", "host_waits.py", WAITS),
    ]
    return [*core[:1], *(through if find_spec("swift") else ()), *core[1:]]


def run(part: Part, seconds: float) -> str:
    """Run one part, and say why it gave nothing, or not all; empty if it did. Its output is a file beside."""
    if seconds <= 0:
        return "no time left"
    command = [sys.executable, str(HERE / part.script), *part.words]
    log = part.json.with_suffix(".log")
    with log.open("w", encoding="utf-8") as out:
        try:
            done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"ended after {seconds:.0f} s"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return "" if done.returncode == 0 else lines[-1] if lines else f"exit status {done.returncode}"


def rows_of(part: Part) -> list[dict[str, Any]]:
    """What a part has measured, also one that was ended."""
    if not part.json.is_file():
        return []
    found = json.loads(part.json.read_text(encoding="utf-8"))
    if "rows" in found:
        return [{"part": "core", **row} for row in found["rows"]]
    return [{"part": part.name, "self_check": "passes", **found, **found["case"]}] if "case" in found else []


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
    parser.add_argument("--seconds", type=float, default=LIMIT, help="after which no more is measured")
    parser.add_argument("--only", default="", help="parts whose name has this in it")
    asked = parser.parse_args()
    asked.to.mkdir(parents=True, exist_ok=True)
    end, rows, missing = time.monotonic() + asked.seconds, [], {}
    for part in parts(asked.to, asked.dry_run):
        if asked.only not in part.name:
            continue
        part.json.unlink(missing_ok=True)
        why = run(part, end - time.monotonic())
        if why:
            missing[part.name] = why
        rows += rows_of(part)
        print(f"{part.name}: {why or 'done'}, {end - time.monotonic():.0f} s left", flush=True)
    result = {"rows": rows, "missing": missing, "dry_run": asked.dry_run}
    (asked.to / "gpu.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if rows and find_spec("matplotlib"):
        plot(rows, asked.to / "gpu.png")
    print(table(rows))
    return int(bool(missing) or any(row["self_check"] != "passes" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
