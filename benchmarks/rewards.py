"""Completions that each reward scores per second, on one core; what a hung reward costs.

    python benchmarks/rewards.py --output rewards.json

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
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

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
WORDS = tuple("the image shows a red car next to an old tree where two people wait at noon".split(" "))  # noqa: SIM905
HUNG = "<answer>$9^{9^{9^{9}}}$</answer>"

Row = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        reward: Its name.
        make: Draws a completion's answer and its row.
        what: What the answers hold.
        boxes: Predicted boxes in each completion.
        goal: Least completions, or boxes where there are some, per second.
    """

    reward: str
    make: Callable[[random.Random], Row]
    what: str
    boxes: int = 0
    goal: int = 0


def boxes(count: int) -> Callable[[random.Random], Row]:
    """As many labelled boxes as gold boxes, near them."""

    def make(rng: random.Random) -> Row:
        gold, predicted = [], []
        for _ in range(count):
            x, y = rng.randrange(800), rng.randrange(800)
            box = [x, y, x + rng.randrange(20, 200), y + rng.randrange(20, 200)]
            gold.append({"bbox_2d": box, "label": "car"})
            predicted.append({"bbox_2d": [value + rng.randrange(-5, 6) for value in box], "label": "car"})
        return f"```json\n{json.dumps(predicted)}\n```", {"solution": gold}

    return make


def point(rng: random.Random) -> Row:
    """A point, and a box that it is to lie in."""
    x, y = rng.randrange(800), rng.randrange(800)
    return f"({x + rng.randrange(60)}, {y + 10})", {"solution": [x, y, x + 40, y + 40]}


def click(rng: random.Random) -> Row:
    """A click, and the box of a button."""
    x, y = rng.randrange(800), rng.randrange(800)
    answer = {"action": "click", "coordinate": [x + rng.randrange(60), y + 10]}
    return json.dumps(answer), {"solution": {"action": "click", "bbox": [x, y, x + 40, y + 40]}}


def segments(rng: random.Random) -> Row:
    """A box with a point in it."""
    _, row = boxes(1)(rng)
    left, top, right, bottom = row["solution"][0]["bbox_2d"]
    gold = [{"bbox_2d": [left, top, right, bottom], "point_2d": [(left + right) // 2, (top + bottom) // 2]}]
    sizes = [{"original": [1000, 1000], "resized": [1008, 1008]}]
    return json.dumps(gold), {"solution": gold, "image_sizes": sizes}


def span(rng: random.Random) -> Row:
    """A span of time."""
    start = rng.random() * 100
    return f"from {start:.1f}s to {start + 9:.1f}s", {"solution": [start + 1, start + 8]}


def number(rng: random.Random) -> Row:
    """A number with a thousands separator and a unit."""
    value = rng.randrange(100_000)
    return f"about {value:,} km", {"solution": f"{value + rng.randrange(100)} km"}


def count(rng: random.Random) -> Row:
    """A small number."""
    return f"There are {rng.randrange(20)} cars.", {"solution": rng.randrange(20)}


def choice(rng: random.Random) -> Row:
    """A letter with its option's text."""
    options = ["a cat", "a dog", "a horse", "a cow"]
    letter = rng.randrange(4)
    return f"{'ABCD'[letter]}. {options[letter]}", {"solution": rng.choice("ABCD"), "options": options}


def yes_no(rng: random.Random) -> Row:
    """A polarity in a sentence."""
    return f"{rng.choice(['Yes', 'No'])}, it is.", {"solution": rng.choice(["yes", "no"])}


def text(words: int) -> Callable[[random.Random], Row]:
    """A text of so many words, a tenth of them misread."""

    def make(rng: random.Random) -> Row:
        gold = [rng.choice(WORDS) for _ in range(words)]
        read = [rng.choice(WORDS) if rng.random() < 0.1 else word for word in gold]
        return " ".join(read), {"solution": " ".join(gold)}

    return make


def fields(rng: random.Random) -> Row:
    """A receipt as JSON."""
    items = [{"name": rng.choice(WORDS), "price": rng.randrange(100)} for _ in range(4)]
    gold = {"total": rng.randrange(1000), "items": items}
    return json.dumps({**gold, "total": rng.randrange(1000)}), {"solution": json.dumps(gold)}


def table(rng: random.Random) -> Row:
    """A table of five rows and four columns."""
    cells = [[rng.choice(WORDS) for _ in range(4)] for _ in range(5)]
    gold = "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], ["---"] * 4, *cells[1:]])
    return gold.replace("car", "cat"), {"solution": gold}


def formula(rng: random.Random) -> Row:
    """A fraction."""
    a, b = rng.randrange(1, 50), rng.randrange(1, 50)
    return rf"\boxed{{\frac{{{2 * a}}}{{{2 * b}}}}}", {"solution": rf"\frac{{{a}}}{{{b}}}"}


def tokens(rng: random.Random) -> Row:
    """A completion with its token ids."""
    ids = [1] * rng.randrange(1, 400)
    return "B", {"response_token_ids": ids, "max_tokens": 256, "accuracy": 1.0, "solution": "B"}


CASES = (
    Case("ext_iou", boxes(1), "1 box", 1, goal=20_000),
    Case("ext_iou", boxes(10), "10 boxes", 10, goal=20_000),
    Case("ext_iou", boxes(50), "50 boxes", 50),
    Case("ext_giou", boxes(1), "1 box", 1),
    Case("ext_detection_f1", boxes(10), "10 boxes", 10),
    Case("ext_detection_map", boxes(10), "10 boxes", 10),
    Case("ext_point_in_box", point, "a point"),
    Case("ext_click", click, "a click as JSON"),
    Case("ext_segmentation_points", segments, "a box and a point"),
    Case("ext_temporal_iou", span, "a span"),
    Case("ext_count", count, "a sentence"),
    Case("ext_count_shaped", count, "a sentence"),
    Case("ext_choice", choice, "letter and option", goal=2_000),
    Case("ext_yes_no", yes_no, "a sentence", goal=2_000),
    Case("ext_numeric", number, "number and unit", goal=2_000),
    Case("ext_ocr", text(20), "20 words", goal=2_000),
    Case("ext_ocr", text(400), "400 words", goal=2_000),
    Case("ext_wer", text(20), "20 words", goal=2_000),
    Case("ext_anls", text(4), "4 words", goal=2_000),
    Case("ext_json_schema", fields, "9 fields"),
    Case("ext_text_f1", text(20), "20 words"),
    Case("ext_rouge", text(20), "20 words"),
    Case("ext_format", choice, "think and answer", goal=2_000),
    Case("ext_overlong", tokens, "200 tokens"),
    Case("ext_cosine", tokens, "200 tokens"),
    Case("ext_repetition", text(200), "200 words"),
    Case("ext_table", table, "5 x 4 cells, in a child"),
    Case("ext_math", formula, "a fraction, in a child"),
)


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
    pool = Pool(CatalogueJob(("ext_math", "ext_table")), workers, LIMIT)
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
    output = parser.parse_args().output
    before = machine()
    pool = use_children(1)
    rows = [measure(case) for case in CASES]
    pool.close()
    found = {"machine": before, "rewards": rows, "hung": hung()}
    Console(width=100).print(shown(rows))
    print(json.dumps(found["hung"], indent=1))
    if output:
        output.write_text(json.dumps(found, indent=1))
        print(output)


if __name__ == "__main__":
    main()
