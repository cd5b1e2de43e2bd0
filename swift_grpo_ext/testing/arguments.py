"""Command line arguments of a short CPU run of the host."""

import json
from pathlib import Path
from typing import Any

from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.families import TINY

# What every CPU run of the host needs, whatever it trains.
CPU_ARGUMENTS: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "fp16": False,
    "torch_dtype": "float32",
    "attn_impl": "sdpa",
    "check_model": False,  # else every start waits 22 s for a hub that is not there
    "load_from_cache_file": False,
    "dataset_num_proc": 1,
    "dataloader_num_workers": 0,
    "dataloader_persistent_workers": False,  # without workers, the default of 4.5.3 ends a stock run
    "report_to": "none",
    "seed": 42,
}
GRPO_ARGUMENTS: dict[str, Any] = {
    "rlhf_type": "grpo",
    "tuner_type": "full",
    "use_vllm": False,
    "num_generations": 4,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "max_completion_length": 8,
    "max_length": 512,
    "max_steps": 2,
    "learning_rate": 1e-3,
    "beta": 0.04,
    "logging_steps": 1,
    "save_strategy": "no",
    "log_completions": True,
}


def grpo_arguments(
    model: str | Path, dataset: str | Path, output: str | Path, **overrides: object
) -> list[str]:
    """The words after ``swift rlhf`` for a GRPO run of seconds on a CPU, with all parts of this package on.

    ``model`` is a checkpoint folder, ``dataset`` a JSONL file; the host makes a version folder in ``output``.
    ``overrides`` are arguments of the host that go on top: a list gives several values, a dict becomes JSON,
    None leaves the argument out.
    """
    chosen = {
        "model": model,
        **host_types(model),
        "dataset": dataset,
        "output_dir": output,
        "external_plugins": plugin_file(),
        **CPU_ARGUMENTS,
        **GRPO_ARGUMENTS,
        **overrides,
    }
    return command_line(chosen)


def command_line(arguments: dict[str, object]) -> list[str]:
    """Spell a table of the host's arguments as a command line; values as in `grpo_arguments`."""
    words: list[str] = []
    for name, value in arguments.items():
        if value is not None:
            words += [f"--{name}", *map(_word, value if isinstance(value, (list, tuple)) else [value])]
    return words


def host_types(model: str | Path) -> dict[str, str]:
    """The host's ``model_type`` and ``template`` of a checkpoint folder, as far as its config names them."""
    config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    tiny = TINY.get(config["model_type"])
    return {} if tiny is None else dict(tiny.host)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value)
