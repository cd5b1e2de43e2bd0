"""Runs the agent: ``python -m examples.agent``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from swift_grpo_ext import testing
from swift_grpo_ext.errors import SwiftGrpoExtError

# Before torch is imported: on the CPU, and on one thread, so that every machine adds in the same order.
os.environ.update(testing.cpu_environment(), OMP_NUM_THREADS="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

from examples.agent import scheduler
from examples.agent.sheets import sheets_dataset
from examples.quickstart.setting import SIZES, Setting
from examples.quickstart.training import train_grpo, warm_start
from swift_grpo_ext.plugin_files import plugin_file

SFT = {
    "max_steps": 90,
    "per_device_train_batch_size": 16,
    "learning_rate": 2e-3,
    "logging_steps": 5,
    "loss_scale": "default",  # both turns are learned
}
# Eight prompts of eight trajectories a step.
GRPO = {
    "max_steps": 200,
    "per_device_train_batch_size": 64,
    "num_generations": 8,
    "learning_rate": 1e-3,
    "beta": 0.01,
    "max_completion_length": 4,  # of a turn
    "temperature": 1.0,
    "reward_funcs": "ext_numeric",  # of the answer after the last turn
    "multi_turn_scheduler": "corners",
    "max_turns": 2,
    "external_plugins": [plugin_file(), Path(scheduler.__file__)],
    "eval_on_start": True,
}


def train(output: Path, seed: int) -> None:
    """Warm start on dialogues, then GRPO on questions alone."""
    setting = Setting("qwen2_5_vl", "Qwen2.5-VL", seed=seed, sft=SFT, grpo=GRPO)
    output.mkdir(parents=True, exist_ok=True)
    model = testing.tiny_checkpoint(setting.family, output / "random", seed=seed, **SIZES)
    sheets = sheets_dataset(output / "sheets", seed=seed)
    print("warm start on dialogues of two turns: swift sft", flush=True)
    warm = warm_start(setting, model, sheets.dialogues, output)
    print("\nGRPO with --multi_turn_scheduler corners: swift rlhf", flush=True)
    train_grpo(setting, warm, sheets.questions, output)


def main() -> int:
    """Entry of the command line; 0, or 2 when the host could not be run."""
    parser = argparse.ArgumentParser(prog="python -m examples.agent", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("output/agent"))
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args()
    started = time.monotonic()
    try:
        train(options.output.resolve(), options.seed)
    except SwiftGrpoExtError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"\ntime {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
