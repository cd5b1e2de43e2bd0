"""The two runs of the host: ``swift sft``, then ``swift rlhf --rlhf_type grpo``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.quickstart.progress import Progress
from examples.quickstart.setting import Setting
from swift_grpo_ext import testing
from swift_grpo_ext.errors import OutputFolderError
from swift_grpo_ext.plugin_files import plugin_file

_LIMIT = 1800.0  # seconds a run

# Everything is trained, the vision tower too: it has never seen an image. The host freezes it otherwise.
TRAINING: dict[str, Any] = {
    "tuner_type": "full",
    "freeze_vit": False,
    "freeze_aligner": False,
    "gradient_checkpointing": False,
    "save_strategy": "steps",
    "save_steps": 100_000,  # the host saves at the end in any case
    "save_only_model": True,
    "disable_tqdm": True,
}

# The best checkpoint is saved when it is found, and kept beside the last one.
_EVALUATION: dict[str, Any] = {
    "eval_strategy": "steps",
    "eval_steps": 50,
    "per_device_eval_batch_size": 360,
    "save_total_limit": 2,
}


def warm_start(setting: Setting, model: Path, dataset: Path, output: Path) -> Path:
    """Teach the random model the form of an answer, and half of the digits, from labels.

    Returns:
        The checkpoint folder.
    """
    arguments = testing.command_line(
        {
            "model": model,
            **testing.host_types(model),
            "dataset": dataset,
            "output_dir": output / "sft",
            "external_plugins": plugin_file(),
            **testing.CPU_ARGUMENTS,
            **TRAINING,
            "max_length": 512,
            "seed": setting.seed,
            **setting.sft,
        }
    )
    return _run("sft", arguments, output / "sft", ("loss", "token_acc"))


def train_grpo(setting: Setting, model: Path, digits: testing.Digits, output: Path) -> Path:
    """Let the model answer and learn from the reward alone, evaluated on images that it does not train on.

    Returns:
        The checkpoint folder.
    """
    arguments = testing.grpo_arguments(
        model,
        digits.train,
        output / "grpo",
        **TRAINING,
        **_EVALUATION,
        val_dataset=digits.test,
        seed=setting.seed,
        **setting.grpo,
    )
    return _run("rlhf", arguments, output / "grpo", ("reward", "held-out"))


def _run(subcommand: str, arguments: Sequence[str], output: Path, figures: Sequence[str]) -> Path:
    output.mkdir(parents=True, exist_ok=True)
    log = output / "log.txt"
    print(f"      full log: {log}", flush=True)
    with log.open("w", encoding="utf-8") as stream:
        progress = Progress(stream, figures)
        testing.run_swift(subcommand, arguments, timeout=_LIMIT, on_line=progress)
    return _last_checkpoint(output)


def _last_checkpoint(output: Path) -> Path:
    folder = testing.newest_version(output)
    checkpoints = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    if not checkpoints:
        raise OutputFolderError("the run left no checkpoint", where=str(folder))
    return checkpoints[-1]
