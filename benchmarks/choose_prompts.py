"""Do prompts that are chosen by their own history teach more than prompts drawn evenly?

    python benchmarks/choose_prompts.py                     # 5 seeds, 4 ways, hours on two cores
    python benchmarks/choose_prompts.py --seeds 1 --steps 40

Each seed trains a tiny Qwen2.5-VL on 480 prompts as users have them: 40 % too easy ("Say 4."), 15 % digits
with another digit as their gold, 15 % pictures of noise, 30 % digits that can be learned. Held-out digits are
answered greedily every 20 steps. Ways are ``uniform``, ms-swift's order; ``dynamic``, its
``--dynamic_sample``; ``skip`` and ``seek``, see choose_prompts_plugin.py. It prints for each the completions
until two evaluations in a row reach what ``uniform`` ends at, less a twentieth of its gain.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

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
    variables = {"CHOOSE_PROMPTS": way, "CHOOSE_PROMPTS_TO": str(output / "asked.jsonl")}
    output.mkdir(parents=True, exist_ok=True)
    testing.run_swift("rlhf", arguments, env=variables, timeout=6 * 3600)
    return testing.newest_version(output)


def curve(folder: Path, asked: Path) -> list[tuple[int, float]]:
    """Completions that were asked for before each evaluation, and its held-out reward."""
    counts = testing.read_jsonl(asked)
    return [
        (
            sum(row["completions"] for row in counts if row["step"] < evaluation.step),
            statistics.fmean(score or 0.0 for score in evaluation.scores["reward"]),
        )
        for evaluation in read_evaluations(folder)
    ]


def until(points: Sequence[tuple[int, float]], target: float) -> int | None:
    """Completions before the first of two evaluations in a row that reach the target; None if none do."""
    for (completions, first), (_, second) in pairwise(points):
        if min(first, second) >= target:
            return completions
    return None


def shares(asked: Path, since: int) -> dict[str, float]:
    """Share of each kind among the completions from a step on."""
    rows = [row["kinds"] for row in testing.read_jsonl(asked) if row["step"] >= since]
    total = sum(sum(kinds.values()) for kinds in rows)
    names = sorted({name for kinds in rows for name in kinds})
    return {name: round(sum(kinds.get(name, 0) for kinds in rows) / max(1, total), 3) for name in names}


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
    ratios: dict[str, list[float]] = {way: [] for way in ways}
    for seed in options.seeds:
        folder = (options.output / f"seed{seed}").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        start = warm_start(folder, seed)
        curves = {}
        for way in ways:
            output = folder / way
            curves[way] = curve(run(way, *start, output, seed, options.steps), output / "asked.jsonl")
        base = [reward for _, reward in curves["uniform"]]
        end = statistics.fmean(base[-3:])
        target = end - (end - base[0]) / 20
        first = until(curves["uniform"], target)
        for way, points in curves.items():
            reached = until(points, target)
            ratios[way].append(reached / first if reached and first else float("nan"))
            figures = {
                "seed": seed,
                "way": way,
                "held out": [round(points[0][1], 3), round(statistics.fmean(r for _, r in points[-3:]), 3)],
                "completions until": reached,
                "completions": points[-1][0],
                "kinds from the second epoch on": shares(folder / way / "asked.jsonl", PROMPTS // 8),
            }
            print(json.dumps(figures), flush=True)
    for way, found in ratios.items():
        print(f"{way}: of uniform's completions {', '.join(f'{ratio:.2f}' for ratio in found)}", flush=True)


if __name__ == "__main__":
    main()
