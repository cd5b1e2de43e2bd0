"""For whom the gains are on: every launch command of ms-swift's documentation, on a tiny model of its family.

    python benchmarks/reach.py --json reach.json

Each command's settings train twice, by ms-swift's trainer and by ours, with made-up completions on prompts
with one image each. Counted, not read, in the second generation batch: runs of the vision tower, tokens of
the language model by pass, and placeholders that a model says which prefers them to all else. One process
stands for a rank: it holds as many completions, and as many of a prompt. Rows with one completion of a prompt
on a rank, and one that shares under ZeRO-3, run on two ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_measure import ranks_variables
from reach_rows import COMMANDS, Row, transformers_rows

from swift_grpo_ext.testing import cpu_environment

TWO_RANKS_TOO = "deepeyes"  # ZeRO-3, groups that straddle ranks
HEAD = (
    "| command | of a prompt on a rank | prompt shared | images once | old pass left out | guard "
    "| tokens, ours / stock |"
)
Found = dict[str, Any]


def on_two_ranks(row: Row) -> bool:
    """Whether a row needs, or is to have, two real ranks."""
    return TWO_RANKS_TOO in row.script or (row.held == 1 and row.group > 1)


def measure_all(rows: Sequence[tuple[int, Row]], ranks: int, folder: Path) -> dict[int, Found]:
    """What each of some rows shows, in this process, which may be one of two ranks."""
    from reach_run import measure

    return {number: measure(row, ranks, folder / str(number)) for number, row in rows}


def measure_by_ranks(numbers: Sequence[int], folder: Path) -> dict[int, Found]:
    """The same on two ranks, in processes of their own."""
    from reach_run import checkpoint, dataset

    out = folder / "ranks.json"
    dataset(folder)
    for family in {transformers_rows()[number].family for number in numbers}:
        checkpoint(family, 0, folder)
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", __file__]
    chosen = ["--rows", ",".join(map(str, numbers)), "--json", str(out), "--rank-of", str(folder)]
    subprocess.run([*words, *chosen], env={**os.environ, **ranks_variables()}, check=True, timeout=1800)
    return {int(number): found for number, found in json.loads(out.read_text(encoding="utf-8")).items()}


def table(rows: Sequence[Found]) -> str:
    """As Markdown."""
    lines = [HEAD, "|---|---|---|---|---|---|---|"]
    for row in rows:
        flags = ["yes" if row[name] else "no" for name in ("vision_once", "skip_old_logps", "guard")]
        cells = [row["script"], row["completions_of_a_prompt_per_rank"], row["shared_prefix"], *flags]
        lines.append(f"| {' | '.join(map(str, cells))} | {row['tokens'] / row['stock_tokens']:.2f} |")
    return "\n".join(lines)


def rank(asked: argparse.Namespace, chosen: Sequence[tuple[int, Row]]) -> None:
    """Be one of two ranks."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if any("deepspeed" in row.args for _, row in chosen):
        import deepspeed

        deepspeed.init_distributed("gloo")  # before a model is loaded, else it reads a world of one
    found = measure_all(chosen, 2, asked.rank_of)
    if dist.get_rank() == 0:
        asked.json.write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", help="numbers of rows, from 0; all by default")
    parser.add_argument("--rank-of", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    os.environ.update(cpu_environment())
    os.environ["SWIFT_GRPO_EXT_DISABLE"] = "callbacks"  # the monitors watch one run, not one after another
    every = list(enumerate(transformers_rows()))
    wanted = {int(one) for one in asked.rows.split(",")} if asked.rows else set(range(len(every)))
    chosen = [(number, row) for number, row in every if number in wanted]
    if asked.rank_of:
        return rank(asked, chosen)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone = [(number, row) for number, row in chosen if not on_two_ranks(row)]
        of_two = [number for number, row in chosen if on_two_ranks(row)]
        found = measure_by_ranks(of_two, folder) if of_two else {}
        found |= measure_all(alone, 1, folder)
    rows = [found[number] for number in sorted(found)]
    if asked.json:
        asked.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(f"{table(rows)}\n\nsettings: {COMMANDS.name}")
    for row in rows:
        print(f"{row['script']}: {row['reason'] or 'all on'}")
    return None


if __name__ == "__main__":
    main()
