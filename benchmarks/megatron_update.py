"""Steps of ms-swift's Megatron trainer and of ours, on a CPU by the harness of `tests/megatron`."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench_measure import median
from bench_operations import Case

from swift_grpo_ext.plugin_files import plugin_file
from tests.megatron.conftest import ENVIRONMENT, make_environment
from tests.megatron.runs import Order, Run, train_all

RECOMPUTE = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
COUNTED = ("tokens", "patches", "tower_calls", "head_rows")


def measure(asked: argparse.Namespace, case: Case, model: Path, rows: Path, folder: Path) -> dict[str, Any]:
    """One group a step in micro-batches of one completion, as most commands type it.

    The first step does not count. The stock trainer runs first: what a plugin registers stays in the process.
    """
    environment = Path(os.environ.get("MEGATRON_ENV", ENVIRONMENT))
    make_environment(environment)
    arguments: dict[str, Any] = {
        "num_generations": case.group,
        "micro_batch_size": 1,
        "global_batch_size": case.group,
        "train_iters": asked.repeats + 1,
        "max_length": case.image_tokens + case.text_tokens + case.completion + 64,
        "max_completion_length": case.completion,
        "beta": case.beta,
        **(RECOMPUTE if case.checkpointing else {}),
        **({"tuner_type": "lora", "target_modules": "all-linear"} if case.lora else {}),
    }
    ours = {**arguments, "external_plugins": plugin_file()}
    lengths = (case.completion, case.completion)
    orders = [
        Order(model, rows, folder / name, chosen, lengths, gradients=False)
        for name, chosen in (("stock", arguments), ("ext", ours))
    ]
    stock, ext = train_all(environment / "bin/python", orders)
    seconds = {"stock": stock.seconds[1:], "ext": ext.seconds[1:]}
    return {
        "ratio": median(seconds["stock"]) / median(seconds["ext"]),
        "all_seconds": seconds,
        **{name: _counted(ext, name) for name in COUNTED},
        **{f"stock_{name}": _counted(stock, name) for name in COUNTED},
        "trainer": ext.mode["trainer"],
        "grad_norm": [run.logs[0]["grad_norm"] for run in (stock, ext)],
        "case": asdict(case),
    }


def _counted(run: Run, name: str) -> int:
    return run.counts[-1].get(name, 0)
