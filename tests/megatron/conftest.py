"""The environment with Megatron, tiny checkpoints that it can split in two, and rows."""

import json
import os
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from swift_grpo_ext import testing
from tests.conftest import built_once
from tests.megatron.runs import PROJECT, Order, Run, RunError, train_all, train_transformers
from tests.megatron.table import BATCH_OF, BATCHES, TEXT_ONLY

if find_spec("mcore_bridge") is None:
    collect_ignore = ["inside"]  # test_inside.py runs it in the environment that has Megatron
ENVIRONMENT = PROJECT / ".swift_grpo_ext" / "envs" / "megatron"


@pytest.fixture(scope="session")
def python(shared_folder) -> Path:
    """Python of the environment with megatron-core and mcore-bridge: of ``MEGATRON_ENV``, else made on first use."""
    folder = PROJECT / os.environ.get("MEGATRON_ENV", ENVIRONMENT)
    built_once(shared_folder / "megatron_environment", lambda _: make_environment(folder))
    return folder / "bin/python"


@pytest.fixture(scope="session")
def python_with_ray(shared_folder) -> Path:
    """Python of one with Ray as well: of ``MEGATRON_RAY_ENV``, else made on first use."""
    folder = Path(os.environ.get("MEGATRON_RAY_ENV", ENVIRONMENT.with_name("megatron-ray")))
    built_once(shared_folder / "ray_environment", lambda _: make_environment(folder, "megatron-ray"))
    return folder / "bin/python"


@pytest.fixture(scope="session")
def engine_packages() -> Path:
    """Where vLLM for the CPU is installed: in the environment ``VLLM_ENV``, else in that of its lane."""
    folder = Path(os.environ.get("VLLM_ENV", ENVIRONMENT.with_name("vllm")))
    packages = next(folder.glob("lib/*/site-packages/vllm"), None)
    if packages is None:
        pytest.fail(f"no vLLM in {folder}: make .swift_grpo_ext/envs/vllm/.ready", pytrace=False)
    return packages.parent


def make_environment(folder: Path, listed: str = "megatron") -> None:
    """Install what ``constraints`` list, unless it is there."""
    if (folder / "bin/python").exists() and next(folder.glob("lib/*/site-packages/mcore_bridge"), None):
        return
    requirements = PROJECT / f"constraints/{listed}.txt"
    overlay = [sys.executable, PROJECT / "tools/overlay.py", folder, requirements]
    made = subprocess.run(overlay, capture_output=True, text=True, timeout=280)
    if made.returncode:
        why = (made.stdout + made.stderr).strip().splitlines()[-1:]
        pytest.fail(f"cannot install {requirements} into {folder}: {''.join(why)}", pytrace=False)


# Tied embeddings in one of a config's two parts only mean one thing to mcore-bridge and another to transformers: an output
# layer that a checkpoint does not have is memory that nobody wrote, and its log-probs are NaN. Experts whose matrices are not square show which way round they are.
UNTIED = {"tie_word_embeddings": False}
SIZES = {
    "qwen3_vl": {"num_hidden_layers": 4},  # as many on each of two stages as the tower has deepstack features
    "qwen3_vl_moe": {**UNTIED, "moe_intermediate_size": 24, "num_hidden_layers": 4},
    "qwen3_5": {**UNTIED, "top": UNTIED},
    "qwen3_5_moe": {**UNTIED, "moe_intermediate_size": 24},
    "internvl": {"top": UNTIED},
    "glm4v_moe": {
        **UNTIED,
        "top": UNTIED,
        "moe_intermediate_size": 24,
        "partial_rotary_factor": 1.0,
        "aux_loss_alpha": 0.0,  # transformers does not move the biases of routers either
    },
}


@pytest.fixture(scope="session")
def tiny(shared_folder):
    """A tiny checkpoint of a family, with two heads of keys and values, which two ranks share."""

    def build(family: str) -> Path:
        return built_once(shared_folder / "megatron_models" / family, partial(write_tiny, family))

    return build


def write_tiny(family: str, folder: Path, **sizes: int) -> None:
    """Write a tiny checkpoint of a family into a folder."""
    testing.tiny_checkpoint(family, folder, num_key_value_heads=2, **SIZES.get(family, {}), **sizes)
    turn_experts(folder / "model.safetensors")


def turn_experts(file: Path) -> None:
    """Write fused experts the way round that released checkpoints have, where transformers writes its own.

    transformers loads both; mcore-bridge takes the released one for granted.
    """
    from safetensors.torch import load_file, save_file

    weights = load_file(file)
    turned = {
        name: weight.transpose(1, 2).contiguous()
        for name, weight in weights.items()
        if weight.dim() == 3 and ".experts." in name
    }
    if turned:
        save_file({**weights, **turned}, file, metadata={"format": "pt"})


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
def mixed_rows(shared_folder, four_rows) -> Path:
    """Four rows with 0, 1, 3 and 1 images."""
    rows = testing.read_jsonl(four_rows)
    pictures = [row["images"][0] for row in rows[:3]]
    for row, number in zip(rows, (0, 1, 3, 1), strict=True):
        others = [picture for picture in pictures if picture != row["images"][0]]
        row["images"] = [*row["images"], *others][:number]
        row["messages"][0]["content"] = "<image>" * number + f"Which digit is this? {number}"
    return rows_of(shared_folder / "mixed_rows", rows)


@pytest.fixture(scope="session")
def rows_for(shared_folder, four_rows, mixed_rows):
    """The rows for a family, without images where it takes none, or those that are mixed."""
    asked = (
        "Which digit follows one?",
        "Count to two.",
        "Name a number below nine.",
        "Is eight an even number?",
    )
    texts = [{"messages": [{"role": "user", "content": question}]} for question in asked]

    def rows(family: str, kind: str = "") -> Path:
        if kind == "mixed":
            return mixed_rows
        return rows_of(shared_folder / "four_texts", texts) if family in TEXT_ONLY else four_rows

    return rows


@pytest.fixture(scope="session")
def made(python, shared_folder, tiny, rows_for):
    """A run of `table.BATCHES` by its name, made with all others of its batch."""

    def order(folder: Path, wanted) -> Order:
        rows = rows_for(wanted.family, wanted.rows)
        return Order(tiny(wanted.family), rows, folder, wanted.arguments, disable=wanted.disable)

    failed: dict[str, RunError] = {}

    def run(name: str) -> Run:
        batch = BATCH_OF[name]
        runs = BATCHES[batch]
        if batch in failed:
            raise failed[batch]

        def build(folder: Path) -> None:
            orders = [order(folder / other, wanted) for other, wanted in runs.items()]
            try:
                train_all(python, orders, next(iter(runs.values())).ranks)
            except RunError as error:
                failed[batch] = error
                raise

        return Run(built_once(shared_folder / "megatron_runs" / batch, build) / name)

    return run


@pytest.fixture(scope="session")
def reference(shared_folder, tiny, rows_for):
    """The stock transformers trainer on the same rows, once per family, rows and arguments."""

    def train(family: str = "qwen2_5_vl", rows: str = "", **arguments):
        name = "_".join(
            ["transformers", family, rows, *(f"{key}-{value}" for key, value in arguments.items())]
        )

        def build(folder: Path) -> None:
            train_transformers(tiny(family), rows_for(family, rows), folder, **arguments)

        return Run(built_once(shared_folder / "megatron_runs" / name, build))

    return train
