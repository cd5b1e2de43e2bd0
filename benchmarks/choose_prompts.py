"""Do prompts that are chosen by their own history teach more than prompts drawn evenly?

    python benchmarks/choose_prompts.py                     # 5 seeds, 4 ways, hours on two cores
    python benchmarks/choose_prompts.py --seeds 1 --steps 40

Each seed trains a tiny Qwen2.5-VL on 480 prompts as users have them: 40 % too easy ("Say 4."), 15 % digits
with another digit as their gold, 15 % pictures of noise, 30 % digits that can be learned. Held-out digits are
answered greedily every 20 steps. Ways are ``uniform``, ms-swift's order; ``dynamic``, its
``--dynamic_sample``; ``skip`` and ``seek``, see choose_prompts_plugin.py. It prints for each the completions,
their tokens and the seconds until two evaluations in a row reach what ``uniform`` ends at, less a twentieth
of its gain; and of each kind the share of prompts that are wrong in nine of ten completions or more, as the
report counts them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from examples.quickstart.training import TRAINING
from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.watch.held_out import read_evaluations

PLUGIN = Path(__file__).with_name("choose_prompts_plugin.py")
WAYS = ("uniform", "dynamic", "skip", "seek")
PROMPTS = 480
EASY, WRONG, NOISE = 0.4, 0.15, 0.15  # shares; the rest can be learned
HELD_OUT = 240
TAUGHT = 50  # digits, and as many easy prompts, that are learned from labels before
NEARLY = 0.1  # as in the report's prompts.js
DIGITS = [str(digit) for digit in range(10)]


def easy(number: int) -> dict[str, Any]:
    """A prompt that says its answer."""
    digit = DIGITS[number % 10]
    turns = [{"role": "user", "content": f"Say {digit}."}, {"role": "assistant", "content": digit}]
    return {"messages": turns, "options": DIGITS, "solution": digit}


def other_digit(row: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """The row with a gold that is wrong."""
    wrong = draw.choice([digit for digit in DIGITS if digit != row["solution"]])
    return {
        **row,
        "messages": [row["messages"][0], {"role": "assistant", "content": wrong}],
        "solution": wrong,
    }


def noise(row: dict[str, Any], folder: Path, number: int, draw: random.Random) -> dict[str, Any]:
    """The row with a picture of which nothing can be read."""
    from PIL import Image

    path = folder / f"noise_{number}.png"
    Image.frombytes("RGB", (56, 56), draw.randbytes(56 * 56 * 3)).save(path)
    return {**row, "images": [str(path)]}


def mixture(rows: Sequence[dict[str, Any]], folder: Path, seed: int) -> list[dict[str, Any]]:
    """The prompts, each with its ``kind`` and its place ``row_id``, of the first of the rows with digits."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    pool = iter(rows)
    counts = {"easy": EASY, "wrong": WRONG, "noise": NOISE, "learnable": 1 - EASY - WRONG - NOISE}
    made = {
        "easy": easy,
        "wrong": lambda _number: other_digit(next(pool), draw),
        "noise": lambda number: noise(next(pool), folder, number, draw),
        "learnable": lambda _number: next(pool),
    }
    mixed = [
        {**made[kind](number), "kind": kind}
        for kind, share in counts.items()
        for number in range(round(share * PROMPTS))
    ]
    draw.shuffle(mixed)
    return [{**row, "row_id": number} for number, row in enumerate(mixed)]


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """One JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def last_checkpoint(output: Path) -> Path:
    """The newest checkpoint of a run."""
    folders = testing.newest_version(output).glob("checkpoint-*")
    return max(folders, key=lambda folder: int(folder.name.split("-")[1]))


def warm_start(folder: Path, seed: int) -> tuple[Path, Path, Path]:
    """A model that knows the easy prompts and some digits; the prompts, and the rows that are held out."""
    digits = testing.digits_dataset(folder / "digits", seed=seed)
    rows = testing.read_jsonl(digits.train)
    prompts = mixture(rows, folder / "noise", seed)
    used = sum(row["kind"] != "easy" for row in prompts)
    taught = [*rows[used : used + TAUGHT], *(easy(number) for number in range(TAUGHT))]
    random.Random(seed).shuffle(taught)
    others = testing.read_jsonl(digits.test)[:HELD_OUT]
    held_out = [{**row, "kind": "held out", "row_id": -1} for row in others]
    model = testing.tiny_checkpoint("qwen2_5_vl", folder / "random", seed=seed, initializer_range=0.06)
    arguments = {
        "model": model,
        **testing.host_types(model),
        "dataset": write(folder / "taught.jsonl", taught),
        "output_dir": folder / "sft",
        "external_plugins": plugin_file(),
        **testing.CPU_ARGUMENTS,
        **TRAINING,
        "max_length": 512,
        "seed": seed,
        "max_steps": 300,
        "per_device_train_batch_size": 16,
        "learning_rate": 5e-4,
        "logging_steps": 50,
    }
    testing.run_swift("sft", testing.command_line(arguments), timeout=3600)
    return (
        last_checkpoint(folder / "sft"),
        write(folder / "prompts.jsonl", prompts),
        write(folder / "held_out.jsonl", held_out),
    )


def run(way: str, model: Path, prompts: Path, held_out: Path, output: Path, seed: int, steps: int) -> Path:
    """One run of GRPO; returns its folder."""
    options: dict[str, Any] = {"dynamic_sample": True, "max_resample_times": 3} if way == "dynamic" else {}
    arguments = testing.grpo_arguments(
        model,
        prompts,
        output,
        **TRAINING,
        **options,
        external_plugins=[plugin_file(), PLUGIN],
        reward_funcs="remembered",
        dataset_shuffle=False,  # so that a row's place is its row_id
        train_dataloader_shuffle=True,
        val_dataset=held_out,
        eval_strategy="steps",
        eval_steps=20,
        eval_on_start=True,
        per_device_eval_batch_size=HELD_OUT,
        per_device_train_batch_size=64,
        num_generations=8,
        max_steps=steps,
        learning_rate=2e-4,
        beta=0.01,
        max_completion_length=4,
        temperature=1.0,
        seed=seed,
    )
    variables = {
        "CHOOSE_PROMPTS": way,
        "CHOOSE_PROMPTS_TO": str(output / "asked.jsonl"),
        "CHOOSE_PROMPTS_MODEL": str(model),
    }
    output.mkdir(parents=True, exist_ok=True)
    testing.run_swift("rlhf", arguments, env=variables, timeout=6 * 3600)
    return testing.newest_version(output)


class Point(NamedTuple):
    """What a run had cost before an evaluation, and its held-out reward."""

    completions: int
    tokens: int
    seconds: float  # since the first completion was scored, evaluations included
    reward: float


def curve(folder: Path, asked: Path) -> list[Point]:
    """A point for each evaluation."""
    lines = testing.read_jsonl(asked)
    points = []
    for evaluation in read_evaluations(folder):
        before = [line for line in lines if line["step"] < evaluation.step]
        points.append(
            Point(
                sum(line["completions"] for line in before),
                sum(line["tokens"] for line in before),
                before[-1]["second"] - lines[0]["second"] if before else 0.0,
                statistics.fmean(score or 0.0 for score in evaluation.scores["reward"]),
            )
        )
    return points


def until(points: Sequence[Point], target: float) -> Point | None:
    """The first of two evaluations in a row that reach the target; None if none do."""
    for first, second in pairwise(points):
        if min(first.reward, second.reward) >= target:
            return first
    return None


def shares(asked: Path, since: int) -> dict[str, float]:
    """Share of each kind among the completions from a step on."""
    rows = [row["kinds"] for row in testing.read_jsonl(asked) if row["step"] >= since]
    total = sum(sum(kinds.values()) for kinds in rows)
    names = sorted({name for kinds in rows for name in kinds})
    return {name: round(sum(kinds.get(name, 0) for kinds in rows) / max(1, total), 3) for name in names}


def always_wrong(asked: Path, prompts: Path) -> dict[str, float]:
    """Share of the prompts of each kind, asked at all, that are wrong in nine of ten completions or more."""
    rewards: dict[int, list[float]] = defaultdict(list)
    for line in testing.read_jsonl(asked):
        for row, scores in line["rewards"].items():
            rewards[int(row)] += scores
    kinds: dict[str, list[bool]] = defaultdict(list)
    for row in testing.read_jsonl(prompts):
        if scores := rewards[row["row_id"]]:
            kinds[row["kind"]].append(statistics.fmean(scores) <= NEARLY)
    return {kind: round(statistics.fmean(found), 3) for kind, found in sorted(kinds.items())}


def main() -> None:
    """Entry of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="beside uniform")
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--output", type=Path, default=Path("output/choose_prompts"))
    options = parser.parse_args()
    os.environ.update(
        testing.cpu_environment(), OMP_NUM_THREADS="1", SWIFT_GRPO_EXT_DISABLE="callbacks.report"
    )
    ways = sorted({"uniform", *options.ways}, key=WAYS.index)  # which all others are held against
    ratios: dict[str, list[list[float]]] = {way: [] for way in ways}
    for seed in options.seeds:
        folder = (options.output / f"seed{seed}").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        start = warm_start(folder, seed)
        curves = {}
        for way in ways:
            output = folder / way
            curves[way] = curve(run(way, *start, output, seed, options.steps), output / "asked.jsonl")
        base = [point.reward for point in curves["uniform"]]
        end = statistics.fmean(base[-3:])
        target = end - (end - base[0]) / 20
        first = until(curves["uniform"], target)
        for way, points in curves.items():
            reached = until(points, target)
            costs = zip(reached[:3], first[:3], strict=True) if first and reached else ()
            ratios[way].append([ours / theirs for ours, theirs in costs])
            figures = {
                "seed": seed,
                "way": way,
                "held out": [
                    round(points[0].reward, 3),
                    round(statistics.fmean(point.reward for point in points[-3:]), 3),
                ],
                "until": reached and [reached.completions, reached.tokens, round(reached.seconds)],
                "whole": [points[-1].completions, points[-1].tokens, round(points[-1].seconds)],
                "kinds from the second epoch on": shares(folder / way / "asked.jsonl", PROMPTS // 8),
                "always wrong": always_wrong(folder / way / "asked.jsonl", start[1]),
            }
            print(json.dumps(figures), flush=True)
    for way, found in ratios.items():
        for at, name in enumerate(Point._fields[:3]):
            words = (f"{ratio[at]:.2f}" if ratio else "never" for ratio in found)
            print(f"{way}: of uniform's {name} {', '.join(words)}", flush=True)


if __name__ == "__main__":
    main()
