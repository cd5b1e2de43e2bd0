"""Two ranks whose micro-batches hold no image, one or three, in many orders: nobody hangs, and nothing changes."""

import pytest

from swift_grpo_ext import testing
from tests.conftest import built_once
from tests.trainer.runs import STOCK, mixed_rows
from tests.trainer.test_passes_ranks import figures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1100), pytest.mark.two_ranks]
# A prompt on each rank in each step, in another order in each of the epochs, of four steps.
ORDERS = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "num_generations": 4,
    "max_steps": 16,
    "num_train_epochs": 4,
    "learning_rate": 1e-6,
}
TRAINED = {"freeze_vit": False, "freeze_aligner": False}
RUNS = {
    "frozen": ("zero3", {}),
    "trained": ("zero3", TRAINED),
    "trained, ddp": (None, TRAINED),
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("family", ["qwen2_5_vl", "mistral3", "gemma3", "internvl", "qwen3_vl"])
def test_orders_of_rows_with_and_without_images(family, run, shared_folder, digits, tmp_path):
    """The other run has a rank for itself: DDP with a frozen tower, in which nobody waits."""
    model = built_once(
        shared_folder / f"tiny_{family}", lambda folder: testing.tiny_checkpoint(family, folder)
    )
    data = mixed_rows(digits, tmp_path / "mixed.jsonl")
    deepspeed, overrides = RUNS[run]
    alone, _ = figures(model, data, tmp_path / "ddp", None, ORDERS, STOCK)
    ours, tail = figures(model, data, tmp_path / "ours", deepspeed, {**ORDERS, **overrides}, {})
    assert "self-check failed" not in tail
    assert len(ours["loss"]) == ORDERS["max_steps"]
    compared = set(alone) - ({"grad_norm"} if overrides else set())  # the tower's are among them there
    for name in compared:
        assert ours[name] == pytest.approx(alone[name], abs=5e-6, rel=5e-5), name
