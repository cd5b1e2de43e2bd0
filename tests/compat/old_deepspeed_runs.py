"""Runs of the host on one DeepSpeed, all in one process: `python old_deepspeed_runs.py MODEL DATA OUTPUT`.

Writes what each run logged, or the error that ended it, to OUTPUT/results.json.
"""

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path

import gloo_for_zero3  # noqa: F401
import length_reward
import swift
from pairs.scripted import installed
from reverting import revert
from swift.rewards import orms
from swift.trainers.trainer_factory import TrainerFactory

import swift_grpo_ext
import swift_grpo_ext.trainer.arguments as arguments
from swift_grpo_ext import testing
from swift_grpo_ext.compat import registry

os.environ["SWIFT_GRPO_EXT_GROUP_BATCH"] = "0"  # else micro-batches become one, and nothing is accumulated
MODEL, DATA, OUTPUT = sys.argv[1], sys.argv[2], Path(sys.argv[3])
ACCUMULATE = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
BF16 = {"bf16": True, "torch_dtype": "bfloat16"}
LORA_ZERO3 = {"tuner_type": "lora", "deepspeed": "zero3", "max_steps": 3}


def run(name, scripted=False, **overrides):
    """What the run logged. Scripted completions are the same on every processor, sampled ones are not."""
    reward = "by_text" if scripted else "even_characters"
    words = testing.grpo_arguments(MODEL, DATA, OUTPUT / name, seed=1, reward_funcs=reward, **overrides)
    try:
        with installed() if scripted else nullcontext():
            testing.run_in_process("rlhf", words)
    except (IndexError, swift_grpo_ext.errors.RefusedError) as error:
        return f"{type(error).__name__}: {error}"
    rows = testing.read_logging(OUTPUT / name)
    return [{key: row[key] for key in ("loss", "grad_norm")} for row in rows if "loss" in row]


def zero1_offload():
    """The host's zero2_offload with the gradients of all micro-steps summed before they are cut up."""
    config = json.loads((Path(swift.__file__).parent / "config" / "zero2_offload.json").read_text())
    config["zero_optimization"]["stage"] = 1
    return config


def without_patches():
    """The same runs refused, and what becomes of them if they are not."""
    revert("B1-zero2-offload")
    revert("A3-zero3-trace")
    refused2 = run("refused2", deepspeed="zero2_offload", **ACCUMULATE)
    arguments.refuse = lambda run: None
    TrainerFactory.TRAINER_MAPPING["grpo"] = "swift.rlhf_trainers.GRPOTrainer"
    stock2 = run("stock2", deepspeed="zero2_offload", **ACCUMULATE)
    stock3 = run("stock3", **LORA_ZERO3)
    return {
        "offload, unhealed": refused2,
        "offload, stock": stock2,
        "lora zero3, stock": stock3,
    }


def main():
    orms["even_characters"] = length_reward.EvenCharacters
    swift_grpo_ext.register()
    registry.import_what_is_awaited()
    results = {
        "states": {outcome.patch.id: outcome.state.value for outcome in registry.outcomes()},
        "zero2": run("zero2", deepspeed="zero2", **ACCUMULATE),
        "offload": run("offload", deepspeed="zero2_offload", **ACCUMULATE),
        "zero1 offload": run("zero1", deepspeed=zero1_offload(), **ACCUMULATE),
        "lora zero3": run("zero3", **LORA_ZERO3),
        "zero0 bf16": run("zero0", scripted=True, deepspeed="zero0", **BF16),
        "plain bf16": run("plain", scripted=True, **BF16),
    }
    if results["states"]["B1-zero2-offload"] == "applied":
        results |= without_patches()
    OUTPUT.mkdir(exist_ok=True)
    (OUTPUT / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
