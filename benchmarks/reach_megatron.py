"""For whom the gains are on under `megatron rlhf`: each command on a tiny model, one process for a rank.

    python benchmarks/reach_megatron.py --json reach_megatron.json
    python benchmarks/reach_megatron.py --ray --json reach_ray.json

As reach.py, with the harness of tests/megatron: ms-swift's Megatron trainer and ours on the same made-up
completions, counted in the second generation batch. One process stands for a data-parallel rank, with as many
completions and as many of a prompt; tensor, pipeline and expert parallelism are left out. ``--ray`` runs the
commands of Ray, each with one worker.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reach_rows import MegatronRow, megatron_rows

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.versions import HOST, installed_version
from tests.megatron.conftest import ENVIRONMENT, make_environment, write_tiny
from tests.megatron.runs import Order, Run, train_all, train_with_ray

# What a tiny run keeps of a command, by ms-swift's names.
KEPT = (
    *("num_generations", "micro_batch_size", "steps_per_generation", "padding_free", "tuner_type", "beta"),
    *("loss_type", "importance_sampling_level", "dynamic_sample", "overlong_filter", "freeze_vit"),
    *("target_modules", "lora_rank", "epsilon", "epsilon_high", "recompute_granularity"),
    "advantage_estimator",
)
LENGTHS = (6, 6)  # tokens of a completion
HEAD = (
    "| command | of a prompt on a rank | prompt shared | images once | old pass left out "
    "| tokens, ours / stock |\n|---|---|---|---|---|---|"
)


def order_of(row: MegatronRow, folder: Path, shared: Path, plugins: dict[str, Any]) -> Order:
    """A tiny run of two generation batches."""
    kept = {name: row.args[name] for name in KEPT if name in row.args}
    if "target_modules" in kept:
        kept["target_modules"] = kept["target_modules"].split()
    teacher = {}
    if "teacher_model" in row.args:
        path = tiny(row.family, shared)
        teacher = {"teacher_model": path, "teacher_model_type": testing.host_types(path)["model_type"]}
    arguments = {
        "beta": None,
        "freeze_vit": None,
        "freeze_aligner": None,
        "num_generations": row.group,
        "micro_batch_size": 1,
        **kept,
        **teacher,
        "global_batch_size": row.per_update,
        "train_iters": 2 * row.updates,
        "reward_funcs": "made_up" if row.group > 1 else None,
        **plugins,
    }
    # With fewer rows than a generation batch has prompts ms-swift's driver of Ray waits for ever.
    limit = max(64, 2 * row.prompts)
    dataset = testing.digits_dataset(shared / f"digits_{limit}", limit=limit).train
    return Order(tiny(row.family, shared), dataset, folder, arguments, LENGTHS, gradients=False)


def result(row: MegatronRow, stock: Run, ours: Run) -> dict[str, Any]:
    """What both runs show in their second generation batch."""
    facts = json.loads((ours.folder / "gains.json").read_text(encoding="utf-8"))
    gains = facts["gains"]
    in_one = facts["of_a_prompt_in_a_micro_batch"] if gains["shared_prefix"]["state"] == "on" else 1
    calls = _sum(row, ours, "decoder_calls")
    skips = gains["skip_old_logps"]["state"] == "on"
    reasons = [f"{name}: {gain['why']}" for name, gain in gains.items() if gain["state"] != "on"]
    return {
        "script": row.script,
        "of_a_prompt_on_a_rank": row.group,
        "shared": "off" if in_one == 1 else "whole" if in_one == row.group else "part",
        "images_once": 0 < _sum(row, ours, "tower_calls") <= row.prompts,
        "old_pass_left_out": _old_pass(row, skips and calls < _sum(row, stock, "decoder_calls")),
        "tokens": _sum(row, ours, "tokens"),
        "stock_tokens": _sum(row, stock, "tokens"),
        "reason": "; ".join(reasons),
    }


def _old_pass(row: MegatronRow, skips: bool) -> str:
    if not skips:
        return "no"
    return "yes" if row.updates == 1 else "of the first update"


def _sum(row: MegatronRow, run: Run, name: str) -> int:
    return sum(step.get(name, 0) for step in run.counts[row.updates :])


def tiny(family: str, shared: Path) -> Path:
    """A tiny checkpoint, made once."""
    folder = shared / family
    if not folder.exists():
        write_tiny(family, folder)
    return folder


def measure_with_ray(chosen: Sequence[MegatronRow], folder: Path) -> list[dict[str, Any]]:
    """Run each by Ray, with ms-swift's driver and worker, and with ours."""
    environment = Path(os.environ.get("MEGATRON_RAY_ENV", ENVIRONMENT.with_name("megatron-ray")))
    make_environment(environment, "megatron-ray")
    found = []
    for number, row in enumerate(chosen):
        runs = []
        for name, plugins in (("stock", {}), ("ours", {"external_plugins": plugin_file()})):
            order = order_of(row, folder / f"{number}-{name}", folder, plugins)
            given = (environment / "bin/python", order.model, order.rows, order.folder)
            # ms-swift's driver loads a Qwen3.5 again, and asks the checkpoint which of its types it is.
            kind = {"swift_version": installed_version(HOST), **testing.host_types(order.model)}
            (Path(order.model) / "args.json").write_text(json.dumps(kind), encoding="utf-8")
            typed = {  # a file of YAML has numbers where a command line has words
                key: yaml.safe_load(value) if isinstance(value, str) else value
                for key, value in order.arguments.items()
            }
            runs.append(train_with_ray(*given, **typed))
        found.append(result(row, *runs))
    return found


def measure(chosen: Sequence[MegatronRow], folder: Path) -> list[dict[str, Any]]:
    """Run all in one process, ms-swift's trainer first: what a plugin registers stays."""
    environment = Path(os.environ.get("MEGATRON_ENV", ENVIRONMENT))
    make_environment(environment)
    plugins = {"stock": {}, "ours": {"external_plugins": plugin_file()}}
    orders = [
        order_of(command, folder / f"{number}-{name}", folder, plugin)
        for name, plugin in plugins.items()
        for number, command in enumerate(chosen)
    ]
    runs = train_all(environment / "bin/python", orders)
    half = len(chosen)
    pairs = zip(chosen, runs[:half], runs[half:], strict=True)
    return [result(command, stock, ours) for command, stock, ours in pairs]


def line(row: dict[str, Any]) -> str:
    """As Markdown."""
    once = "yes" if row["images_once"] else "no"
    cells = [row["script"], row["of_a_prompt_on_a_rank"], row["shared"], once, row["old_pass_left_out"]]
    return f"| {' | '.join(map(str, cells))} | {row['tokens'] / row['stock_tokens']:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", help="numbers of commands, from 0; all by default")
    parser.add_argument("--ray", action="store_true", help="the commands of Ray, and no others")
    asked = parser.parse_args()
    engine = "megatron-ray" if asked.ray else "megatron"
    every = [command for command in megatron_rows() if command.engine == engine]
    chosen = [every[int(number)] for number in asked.rows.split(",")] if asked.rows else every
    os.environ.update(testing.cpu_environment())
    with tempfile.TemporaryDirectory() as folder:
        rows = (measure_with_ray if asked.ray else measure)(chosen, Path(folder))
    if asked.json:
        asked.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    print("\n".join([HEAD, *map(line, rows)]))
    for row in rows:
        print(f"{row['script']}: {row['reason'] or 'all on'}")


if __name__ == "__main__":
    main()
