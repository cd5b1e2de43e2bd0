"""A reference model that is the policy's own checkpoint is equal to it at the start: the first kl is 0."""

import pytest
import torch

from swift_grpo_ext import testing
from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.trainer import grpo
from tests.conftest import built_once
from tests.trainer.runs import figures, told

KL = {"beta": 0.04, "max_steps": 2}


def zeroed(monkeypatch, name):
    """As a rank has it that loads nothing because rank 0 does."""
    original = grpo.GRPOTrainer.train

    def train(trainer, *args, **kwargs):
        with torch.no_grad():
            for parameter in getattr(trainer, name).parameters():
                parameter.zero_()
        return original(trainer, *args, **kwargs)

    monkeypatch.setattr(grpo.GRPOTrainer, "train", train)


def test_a_reference_of_zeros_ends_the_run_in_its_first_step(tiny_qwen, digits, tmp_path, monkeypatch):
    zeroed(monkeypatch, "ref_model")
    with pytest.raises(
        RefusedError, match="must be 0: the reference model has other weights than the policy"
    ):
        figures(tiny_qwen, digits.train, tmp_path, **KL)


def test_a_fresh_reference_has_a_first_kl_of_0_and_nothing_is_said(tiny_qwen, digits, tmp_path):
    with told() as messages:
        logged = figures(tiny_qwen, digits.train, tmp_path, **KL)
    assert logged["kl"][0] == pytest.approx(0, abs=1e-6)
    assert not [text for text in messages if "kl of the first step" in text]


def test_another_kl_is_said_with_its_reason(tiny_qwen, digits, tmp_path):
    with told() as messages:
        logged = figures(tiny_qwen, digits.train, tmp_path, **KL, neftune_noise_alpha=50.0)
    (line,) = [text for text in messages if "kl of the first step" in text]
    assert logged["kl"][0] > 1e-4
    assert "the reference is the policy without its noise (NEFTune" in line


def test_another_reference_is_no_fault(tiny_qwen, digits, tmp_path, shared_folder):
    other = built_once(
        shared_folder / "tiny_qwen_seed_1", lambda folder: testing.tiny_qwen2_5_vl(folder, seed=1)
    )
    with told() as messages:
        figures(tiny_qwen, digits.train, tmp_path, **KL, ref_model=other)
    assert not [text for text in messages if "kl of the first step" in text]
