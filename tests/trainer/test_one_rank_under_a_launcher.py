"""``NPROC_PER_NODE=1``: torchrun wraps the model in DDP for a single rank, too."""

import pytest

from swift_grpo_ext import testing
from tests.trainer.runs import mixed_rows


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_trained_tower_takes_rows_without_an_image(tiny_qwen, digits, tmp_path):
    """DDP waits for the gradients of a tower that a micro-batch of text alone never runs."""
    words = testing.grpo_arguments(
        tiny_qwen,
        mixed_rows(digits, tmp_path / "mixed.jsonl"),
        tmp_path / "run",
        freeze_vit=False,
        freeze_aligner=False,
        num_generations=2,
        per_device_train_batch_size=2,
        max_steps=6,
        gradient_checkpointing=True,
    )
    result = testing.run_swift("rlhf", words, {"NPROC_PER_NODE": "1", "MASTER_PORT": str(29617)})
    assert "6/6" in result.tail
