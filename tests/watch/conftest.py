"""Short runs of the host in this process, with the monitors on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.watch.journal import read_events

PLUGINS = [Path(__file__).with_name(name) for name in ("faulty_rewards.py", "faulty_callbacks.py")]


class Run:
    """What a run left."""

    def __init__(self, output: Path):
        self.folder = testing.newest_version(output)
        self.steps = [row for row in testing.read_logging(output) if "loss" in row]
        self.verdicts = read_events(self.folder, ["verdict"])
        self.events = read_events(self.folder)

    def verdict(self, name: str) -> str:
        (text,) = [event["text"] for event in self.verdicts if event["id"] == name]
        return text


@pytest.fixture
def watched_run(tiny_qwen, digits, tmp_path, monkeypatch) -> Callable[..., Run]:
    """Runs GRPO on two groups of four per step. Variables of the package go in as ``env``."""

    def run(reward: str, env: dict[str, str] | None = None, dataset: Path | None = None, **overrides) -> Run:
        for name, value in (env or {}).items():
            monkeypatch.setenv(f"SWIFT_GRPO_EXT_{name}", value)
        arguments = testing.grpo_arguments(
            tiny_qwen,
            dataset or digits.train,
            tmp_path,
            **{
                "reward_funcs": f"test_{reward}",
                "external_plugins": [plugin_file(), *PLUGINS],
                "per_device_train_batch_size": 8,
                "max_steps": 4,
                "warmup_ratio": 0,
                "lr_scheduler_type": "constant",
                "beta": 0,
                **overrides,
            },
        )
        testing.run_in_process("rlhf", arguments)
        return Run(tmp_path)

    return run
