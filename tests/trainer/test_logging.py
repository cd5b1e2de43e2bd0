"""What is logged does not depend on micro-batching and is not poisoned by one NaN."""

import math
from types import SimpleNamespace

import pytest
import torch

from swift_grpo_ext import testing
from swift_grpo_ext.trainer.logging import Logging
from swift_grpo_ext.watch.guard import Guard


def test_kl_is_the_mean_over_tokens_however_they_are_cut(tiny_qwen, digits, tmp_path):
    """Stock logs another figure for each cut although the gradient is the same."""
    found = []
    for size, accumulation in ((8, 1), (4, 2), (1, 8)):
        output = tmp_path / f"{size}x{accumulation}"
        arguments = testing.grpo_arguments(
            tiny_qwen,
            digits.train,
            output,
            seed=1,
            reward_funcs="format",
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulation,
            beta=1.0,
            learning_rate=1e-2,
            lr_scheduler_type="constant",
        )
        testing.run_in_process("rlhf", arguments)
        found.append([row["kl"] for row in testing.read_logging(output) if "loss" in row])
    assert found[0][1] > 0
    assert found[1] == pytest.approx(found[0], rel=1e-5)
    assert found[2] == pytest.approx(found[0], rel=1e-5)


def test_nan_in_one_micro_batch_leaves_the_mean_of_the_others(said):
    metrics = {
        "entropy/mean": [1.0, math.nan, 3.0],
        "rollout_correction/kl": [torch.tensor(1.0), torch.tensor(math.inf)],
        "nothing": [math.nan],
        "fine": [5.0],
    }
    host = SimpleNamespace(
        model=torch.nn.Linear(1, 1),
        state=SimpleNamespace(global_step=3),
        args=SimpleNamespace(output_dir="run"),
        guard=Guard(),
        log_completions=False,
        _metrics={"train": metrics},
        _logs={},
    )
    logging = Logging(host)
    logging.complete()
    logged = {name: float(sum(values) / len(values)) for name, values in metrics.items()}
    assert logged == {"entropy/mean": 2.0, "rollout_correction/kl": 1.0, "fine": 5.0}
    assert [len(values) for values in metrics.values()] == [3, 2, 1]
    named = [line.split()[2] for line in said if "was not finite" in line]
    assert named == ["entropy/mean", "rollout_correction/kl", "nothing"]
