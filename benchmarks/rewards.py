"""Microseconds of each reward on the rows of the contract, and on answers made to take long.

python benchmarks/rewards.py [--long]

Every row of ``tests/rewards/contract_rows.jsonl`` behind 600 characters of thought, in this process: the
median over the rows of the best of five. With ``--long``: milliseconds of one answer of 1 MB.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from swift_grpo_ext.rewards.catalogue import get_reward
from swift_grpo_ext.rewards.contract import Reward

ROWS = Path(__file__).parents[1] / "tests" / "rewards" / "contract_rows.jsonl"
THOUGHT = (
    "<think>"
    + "There is something on the left of the image, and something else on the right. " * 8
    + "</think>\n"
)
LONG = (
    "1",
    "<answer>",
    "[",
    "(1, ",
    "[1, 2, 3, 4], ",
    "\\boxed{",
    "\x00",
    "{'a': ",
    "The answer is 4. ",
    "A, ",
)


def seconds(reward: Reward, completion: str, row: dict[str, Any], repeats: int) -> float:
    """The best of five, of one call."""
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        for _ in range(repeats):
            reward.outcome(completion, row)
        best = min(best, (time.process_time() - started) / repeats)
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--long", action="store_true", help="only answers of 1 MB")
    options = parser.parse_args()
    rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
    times: dict[str, list[float]] = defaultdict(list)
    for case in rows:
        reward = get_reward(case["reward"])
        if options.long:
            if len(times[reward.name]) < len(LONG) and reward.name != "ext_math":
                text = LONG[len(times[reward.name])]
                made = text * (1_000_000 // len(text))
                times[reward.name].append(seconds(reward, made, case["row"], 1))
        else:
            times[reward.name].append(seconds(reward, THOUGHT + case["answer"], case["row"], 20))
    table = Table(
        "reward", "rows", "median", "worst", title="milliseconds" if options.long else "microseconds"
    )
    scale = 1e3 if options.long else 1e6
    for name, listed in times.items():
        figures = (f"{value * scale:.1f}" for value in (statistics.median(listed), max(listed)))
        table.add_row(name, str(len(listed)), *figures)
    Console(width=80).print(table)


if __name__ == "__main__":
    main()
