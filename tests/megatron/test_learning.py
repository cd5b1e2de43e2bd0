"""Many steps on sampled completions, with the optimizer and the schedule of a real run."""

import shutil

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from tests.megatron.conftest import rows_of
from tests.megatron.runs import Order, train_all, train_transformers

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]
STEPS = 12
SAME = {
    "external_plugins": plugin_file(),
    "adam_beta2": 0.95,
    "weight_decay": 0.1,
    "num_generations": 8,
    "max_completion_length": 6,
    "temperature": 1.0,
    "beta": 0.01,
    "dataset_shuffle": False,
    "train_dataloader_shuffle": False,
}


def test_training_is_that_of_transformers_step_by_step(python, tiny, digits, shared_folder, tmp_path):
    """Rows in the same order, and the completions that the first run sampled."""
    rows = rows_of(shared_folder / "rows_to_learn", testing.read_jsonl(digits.train)[: 2 * STEPS])
    megatron = {
        **SAME,
        "micro_batch_size": 2,
        "global_batch_size": 16,
        "train_iters": STEPS,
        "lr": 1e-3,
        "min_lr": 0,
        "lr_decay_style": "cosine",
        "adam_eps": 1e-8,
    }
    order = Order(tiny("qwen2_5_vl"), rows, tmp_path / "megatron", megatron, gradients=False, sampled=True)
    (run,) = train_all(python, [order])
    (tmp_path / "transformers").mkdir()
    shutil.copy(tmp_path / "megatron/sampled.jsonl", tmp_path / "transformers")
    transformers = {
        **SAME,
        "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": 1,
        "max_steps": STEPS,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "cosine",
        "adam_epsilon": 1e-8,
    }
    other = train_transformers(tiny("qwen2_5_vl"), rows, tmp_path / "transformers", **transformers)
    assert len(run.logs) == len(other.logs) == STEPS
    for ours, theirs in zip(run.logs, other.logs, strict=True):
        assert ours["learning_rate"] == pytest.approx(theirs["learning_rate"], rel=1e-5)
        # Adam divides gradients that are nearly 0 by their own size: rounding grows from step to step.
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-5)
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-3)
