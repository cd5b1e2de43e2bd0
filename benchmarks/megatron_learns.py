"""The quickstart's digits, learned with Megatron and with transformers from the same warm start.

    python benchmarks/megatron_learns.py --seeds 1 2 3

For each seed the quickstart's model is warmed up, then trained by GRPO twice: by `swift rlhf`, and by
`megatron rlhf` on the CPU (docs/megatron.md), where a copy of the policy in transformers samples in vLLM's
place. Both have this package's trainer. Printed are the shares of 360 held-out images that are read right.
``--only`` leaves one engine out, ``--output`` keeps the runs. With
SWIFT_GRPO_EXT_DISABLE=megatron the Megatron trainer is ms-swift's own. Each engine shuffles the rows in its
own way; with ``--in-order`` both read them as they stand in the file.

    python benchmarks/megatron_learns.py --seeds 1 --replay 60

trains for 60 steps with Megatron, and then with transformers on the same rows and on the completions that
Megatron's run sampled: what is left is how an update is made. Printed are loss and grad_norm of both.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from swift_grpo_ext import testing

os.environ.update(testing.cpu_environment(), OMP_NUM_THREADS="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
os.environ.setdefault("SWIFT_GRPO_EXT_DISABLE", "callbacks.report")

from examples.quickstart.evaluation import accuracy, greedy_answers
from examples.quickstart.setting import SETTINGS, SIZES, Setting
from examples.quickstart.training import TRAINING, train_grpo, warm_start
from swift_grpo_ext.plugin_files import plugin_file
from tests.megatron.conftest import ENVIRONMENT, make_environment
from tests.megatron.runs import Order, Run, train_all, train_transformers

LIMIT = 3600.0  # seconds of a run


def by_megatron(setting: Setting, warm: Path, digits: testing.Digits, output: Path, **further: Any) -> Path:
    """Train with Megatron, with the quickstart's figures by their names there; the checkpoint."""
    environment = Path(os.environ.get("MEGATRON_ENV", ENVIRONMENT))
    make_environment(environment)
    grpo = dict(setting.grpo)
    size = grpo.pop("per_device_train_batch_size")
    steps = grpo.pop("max_steps")
    rate = grpo.pop("learning_rate")
    arguments: dict[str, Any] = {
        **grpo,
        "lr": rate,
        "train_iters": steps,
        "micro_batch_size": grpo["num_generations"],
        "global_batch_size": size,
        "seed": setting.seed,
        "external_plugins": plugin_file(),
        # What `swift rlhf` has by default.
        "adam_eps": 1e-8,
        "weight_decay": 0.1,
        "lr_decay_style": "cosine",
        "min_lr": 0,
        "logging_steps": 10,
        **further,
    }
    disable = os.environ["SWIFT_GRPO_EXT_DISABLE"]
    order = Order(
        warm, digits.train, output / "megatron", arguments, gradients=False, disable=disable, sampled=True
    )
    train_all(environment / "bin/python", [order], limit=LIMIT)
    return output / "megatron" / f"checkpoint-{steps}"


IN_ORDER = {"dataset_shuffle": False, "train_dataloader_shuffle": False}


def replay(setting: Setting, steps: int, output: Path) -> None:
    """Train with Megatron, then with transformers on the same rows and completions; print both."""
    model = testing.tiny_checkpoint(setting.family, output / "random", seed=setting.seed, **SIZES)
    digits = testing.digits_dataset(output / "digits", seed=setting.seed)
    warm = warm_start(setting, model, digits.train, output)
    short = replace(setting, grpo={**setting.grpo, "max_steps": steps})
    by_megatron(short, warm, digits, output, **IN_ORDER, logging_steps=1)
    folder = output / "transformers"
    folder.mkdir()
    shutil.copy(output / "megatron/sampled.jsonl", folder)
    arguments: dict[str, Any] = {
        **TRAINING,
        **short.grpo,
        **IN_ORDER,
        "logging_steps": 1,
        "save_strategy": "no",
        "gradient_accumulation_steps": 1,
        "adam_epsilon": 1e-8,
        "weight_decay": 0.1,
        "lr_scheduler_type": "cosine",
        "seed": setting.seed,
        "external_plugins": plugin_file(),
    }
    other = train_transformers(warm, digits.train, folder, **arguments)
    print("step  loss of Megatron, transformers  grad_norm of Megatron, transformers")
    for step, (ours, theirs) in enumerate(zip(Run(output / "megatron").logs, other.logs, strict=True), 1):
        pairs = [f"{ours[name]:.6f} {theirs[name]:.6f}" for name in ("loss", "grad_norm")]
        print(f"{step:4}", *pairs, sep="  ", flush=True)


ENGINES: dict[str, Callable[[Setting, Path, testing.Digits, Path], Path]] = {
    "transformers": train_grpo,
    "megatron": by_megatron,
}


def learn(setting: Setting, engines: list[str], output: Path) -> dict[str, float]:
    """Per cent of the held-out images that are right after the warm start, and after each engine."""
    model = testing.tiny_checkpoint(setting.family, output / "random", seed=setting.seed, **SIZES)
    digits = testing.digits_dataset(output / "digits", seed=setting.seed)
    held_out = testing.read_jsonl(digits.test)
    trained = {"warm start": warm_start(setting, model, digits.train, output)}
    for name in engines:
        trained[name] = ENGINES[name](setting, trained["warm start"], digits, output)
    return {name: accuracy(greedy_answers(path, held_out), held_out) for name, path in trained.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--model", choices=sorted(SETTINGS), default="qwen2_5_vl")
    parser.add_argument("--only", choices=sorted(ENGINES))
    parser.add_argument("--in-order", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--replay", type=int, metavar="STEPS")
    asked = parser.parse_args()
    engines = [asked.only] if asked.only else list(ENGINES)
    for seed in asked.seeds:
        with tempfile.TemporaryDirectory() as folder:
            output = asked.output / f"seed_{seed}" if asked.output else Path(folder)
            if asked.replay:
                replay(SETTINGS[asked.model].with_seed(seed), asked.replay, output)
                continue
            setting = SETTINGS[asked.model].with_seed(seed)
            if asked.in_order:
                setting = replace(setting, grpo={**setting.grpo, **IN_ORDER})
            right = learn(setting, engines, output)
        print(
            f"seed {seed}: " + ", ".join(f"{name} {share:.1f} %" for name, share in right.items()), flush=True
        )


if __name__ == "__main__":
    main()
