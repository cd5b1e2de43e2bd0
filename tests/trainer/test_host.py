"""What our collaborators ask of ms-swift's trainer, and how often."""

from collections import Counter

import torch
from accelerate import Accelerator
from torch import nn

from swift_grpo_ext import testing
from swift_grpo_ext.testing.families import TINY
from swift_grpo_ext.trainer.host import unwrapped
from tests.conftest import built_once
from tests.trainer.runs import figures, mixed_rows


def test_unwrapped_is_what_accelerate_unwraps():
    model = nn.Sequential(nn.Linear(2, 2))
    for wrapped in (
        model,
        nn.DataParallel(model),
        nn.DataParallel(nn.DataParallel(model)),
        torch.compile(model),
    ):
        assert unwrapped(wrapped) is Accelerator(cpu=True).unwrap_model(wrapped)


def test_a_step_asks_accelerate_for_the_model_once(shared_folder, digits, tmp_path, monkeypatch):
    """As ms-swift does for the rollout. Each time costs milliseconds, and it was a dozen times a step."""
    model = built_once(shared_folder / "tiny_llama", lambda folder: testing.tiny_checkpoint("llama", folder))
    rows = mixed_rows(digits, shared_folder / "mixed_0.jsonl", 0)
    unwrap = Accelerator.unwrap_model
    calls = Counter()

    def counted(accelerator, *args, **kwargs):
        calls[steps] += 1
        return unwrap(accelerator, *args, **kwargs)

    monkeypatch.setattr(Accelerator, "unwrap_model", counted)
    for steps in (2, 4):
        figures(model, rows, tmp_path / str(steps), max_steps=steps, **TINY["llama"].host)
    assert calls[4] - calls[2] == 2
