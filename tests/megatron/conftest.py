"""The environment with Megatron, tiny checkpoints that it can split in two, and rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from swift_grpo_ext import testing
from tests.conftest import built_once
from tests.megatron.runs import PROJECT, train_transformers

ENVIRONMENT = PROJECT / ".swift_grpo_ext" / "envs" / "megatron"


@pytest.fixture(scope="session")
def python(shared_folder) -> Path:
    """Python of the environment with megatron-core and mcore-bridge: of ``MEGATRON_ENV``, else made on first use."""
    folder = Path(os.environ.get("MEGATRON_ENV", ENVIRONMENT))
    built_once(shared_folder / "megatron_environment", lambda _: make_environment(folder))
    return folder / "bin/python"


def make_environment(folder: Path) -> None:
    if (folder / "bin/python").exists() and next(folder.glob("lib/*/site-packages/mcore_bridge"), None):
        return
    overlay = [sys.executable, PROJECT / "tools/overlay.py", folder, PROJECT / "constraints/megatron.txt"]
    made = subprocess.run(overlay, capture_output=True, text=True, timeout=280)
    if made.returncode:
        why = (made.stdout + made.stderr).strip().splitlines()[-1:]
        pytest.fail(f"cannot install constraints/megatron.txt into {folder}: {''.join(why)}", pytrace=False)


@pytest.fixture(scope="session")
def tiny(shared_folder):
    """A tiny checkpoint of a family, with two heads of keys and values, which two ranks share."""

    def build(family: str, **sizes) -> Path:
        name = "_".join([family, *(f"{key}{value}" for key, value in sizes.items())])
        sizes = {"num_key_value_heads": 2, **sizes}
        return built_once(
            shared_folder / "megatron_models" / name,
            lambda folder: testing.tiny_checkpoint(family, folder, **sizes),
        )

    return build


@pytest.fixture(scope="session")
def four_rows(shared_folder, digits) -> Path:
    """Four rows with an image each: one generation batch."""
    return rows_of(shared_folder / "four_rows", testing.read_jsonl(digits.train)[:4])


def rows_of(folder: Path, rows: list[dict]) -> Path:
    """A JSONL file with rows, written once for all workers."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    return built_once(folder, write) / "rows.jsonl"


@pytest.fixture(scope="session")
def reference(shared_folder, tiny, four_rows):
    """The stock transformers trainer on the same rows, once per family and arguments."""
    from tests.megatron.runs import Run

    def train(family: str = "qwen2_5_vl", **arguments):
        name = "_".join(["transformers", family, *(f"{key}-{value}" for key, value in arguments.items())])
        folder = shared_folder / "megatron_runs" / name
        return Run(
            built_once(
                folder, lambda folder: train_transformers(tiny(family), four_rows, folder, **arguments)
            )
        )

    return train
