"""Completions that each reward scores per second, on one core; what a hung reward costs.

    python benchmarks/rewards.py --output rewards.json
    python benchmarks/rewards.py --long                      # CPU time of one answer of 32 kB, by reward

Each completion has some 400 characters of thinking before its answer. Rewards that run in this process are
timed in CPU seconds; those that run in child processes by the clock, with one child. Every reward is called
as a run calls it: routing, parameters of rows and table, counting. Loads neither torch nor the host.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import time
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

from reward_cases import CASES, WORDS, Case
from rich.console import Console
from rich.table import Table

from swift_grpo_ext.rewards.catalogue import get_reward
from swift_grpo_ext.rewards.runtime import runner
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.pool import Pool
from swift_grpo_ext.rewards.runtime.rules import RewardTable
from swift_grpo_ext.rewards.runtime.worker import CatalogueJob

BATCH = 256
REPEATS = 5
LIMIT = 2.0
HUNG = "<answer>$9^{9^{9^{9}}}$</answer>"


def batch_of(case: Case) -> Batch:
    """`BATCH` completions with their rows, always the same ones."""
    rng = random.Random(f"{case.reward} {case.what}")
    made = [case.make(rng) for _ in range(BATCH)]
    thinking = " ".join(rng.choice(WORDS) for _ in range(90))
    completions = [f"<think>\n{thinking}\n</think>\n<answer>\n{answer}\n</answer>" for answer, _ in made]
    return Batch(completions, {name: [row[name] for _, row in made] for name in made[0][1]}, {})


def measure(case: Case) -> dict[str, Any]:
    """Median rate of some repeats, after one that is not counted."""
    reward = get_reward(case.reward)
    run, batch = runner.Runner(reward, table=RewardTable()), batch_of(case)
    scores = [score for score in run(batch) if score is not None]
    assert len(scores) == BATCH, f"{case.reward}: {BATCH - len(scores)} rows without a score"
    clock = time.perf_counter if reward.cost == "process" else time.process_time
    seconds = []
    for _ in range(REPEATS):
        started = clock()
        run(batch)
        seconds.append(clock() - started)
    rate = BATCH / statistics.median(seconds)
    reached = rate * max(1, case.boxes)
    return {
        "reward": case.reward,
        "answers": case.what,
        "completions_per_second": rate,
        "boxes_per_second": reached if case.boxes else None,
        "goal": case.goal or None,
        "reached": not case.goal or reached >= case.goal,
        "mean_score": statistics.fmean(scores),
    }


def most_boxes() -> float:
    """CPU seconds of one ext_detection_f1 with as many boxes in answer and gold as it reads."""
    rng = random.Random("boxes")
    corners = [(rng.randrange(900), rng.randrange(900)) for _ in range(600)]
    found = [{"bbox_2d": [x, y, x + 60, y + 40], "label": "car", "score": rng.random()} for x, y in corners]
    reward, answer, row = get_reward("ext_detection_f1"), json.dumps(found[:300]), {"solution": found[300:]}
    reward(answer, row)
    started = time.process_time()
    reward(answer, row)
    return time.process_time() - started


def long_answers() -> dict[str, str]:
    """32 kB each: prose with numbers and letters in it, lines with places, corrections, JSON, thinking."""
    rng = random.Random("long")
    behind = (*[""] * 4, ",", ". So it is 7", ": B", " [1, 2, 3, 4]", "?", " if it would be")
    prose = " ".join(rng.choice(WORDS) + rng.choice(behind) for _ in range(8000))[:32_000]
    repeated = {
        "lines": "1. A: no\n- item [10, 20, 30, 40] is B. cat\n",
        "corrections": "wait, no, it is 7. if it is so the answer is ",
        "objects": '{"bbox_2d": [1, 2, 3, 4], "label": "cat"}, ',
    }
    thought = f"<think>{prose[:30_000]}</think>\n7"
    return {"thought": thought, "prose": prose} | {
        what: (piece * 4000)[:32_000] for what, piece in repeated.items()
    }


def long_times() -> Table:
    """Milliseconds of CPU for each of `long_answers`, the best of three; of rewards in this process."""
    answers = long_answers()
    made = Table("reward", *answers)
    rows = {case.reward: case.make(random.Random(0))[1] for case in CASES}
    for name, row in rows.items():
        reward = get_reward(name)
        if reward.cost != "inline":
            continue
        times = []
        for text in answers.values():
            started = [time.process_time()]
            for _ in range(3):
                reward(text, row)
                started.append(time.process_time())
            times.append(min(after - before for before, after in pairwise(started)))
        made.add_row(name, *(f"{seconds * 1e3:.1f}" for seconds in times))
    return made


def hung() -> dict[str, float]:
    """Seconds of a batch, and of the same batch with one completion that hangs, with two children."""
    pool = use_children(2)
    batch = batch_of(CASES[-1])
    run = runner.Runner(get_reward("ext_math"), table=RewardTable())
    run(batch)
    started = time.perf_counter()
    run(batch)
    plain = time.perf_counter() - started
    started = time.perf_counter()
    scores = run(Batch([HUNG, *batch.completions[1:]], batch.columns, {}))
    with_hung = time.perf_counter() - started
    pool.close()
    return {
        "limit_s": pool.limit,
        "batch_s": plain,
        "batch_with_one_hung_s": with_hung,
        "hung_costs_s": with_hung - plain,
        "others_scored": sum(score == 1.0 for score in scores[1:]),
        "score_of_hung": float(scores[0] or 0.0),
    }


def use_children(workers: int) -> Pool:
    """Let the rewards that need children share so many."""
    pool = Pool(CatalogueJob(("ext_math", "ext_table", "ext_json_schema")), workers, LIMIT)
    runner.catalogue_pool = lambda: pool  # type: ignore[assignment]
    return pool


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": model[0].partition(":")[2].strip() if model else platform.processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("scipy", "rapidfuzz", "math-verify", "pydantic")},
    }


def shown(rows: list[dict[str, Any]]) -> Table:
    """The rates as a table."""
    made = Table()
    for heading in ("reward", "answers", "completions/s", "boxes/s", "goal", ""):
        made.add_column(heading, justify="right" if "/s" in heading or heading == "goal" else "left")
    for row in rows:
        rates = [row["completions_per_second"], row["boxes_per_second"], row["goal"]]
        cells = [f"{rate:,.0f}" if rate else "" for rate in rates]
        made.add_row(row["reward"], row["answers"], *cells, "" if row["reached"] else "missed")
    return made


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path, help="JSON file to write")
    parser.add_argument("--long", action="store_true", help="only the times of answers of 32 kB")
    options = parser.parse_args()
    if options.long:
        Console(width=100).print(long_times())
        return
    output = options.output
    before = machine()
    pool = use_children(1)
    rows = [measure(case) for case in CASES]
    pool.close()
    found = {"machine": before, "rewards": rows, "f1_of_300_boxes_s": most_boxes(), "hung": hung()}
    Console(width=100).print(shown(rows))
    print(f"ext_detection_f1 of 300 x 300 boxes: {found['f1_of_300_boxes_s']:.3f} s")
    print(json.dumps(found["hung"], indent=1))
    if output:
        output.write_text(json.dumps(found, indent=1))
        print(output)


if __name__ == "__main__":
    main()
