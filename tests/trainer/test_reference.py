"""A reference model or teacher that is the policy's own checkpoint is equal to it at the start."""

import pytest
import torch

from swift_grpo_ext import testing
from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.trainer import grpo
from swift_grpo_ext.trainer.reference import difference
from tests.conftest import built_once
from tests.trainer.runs import figures, told
from tests.trainer.unstarted_trainer import unstarted_trainer

KL = {"beta": 0.04, "max_steps": 2}


@pytest.fixture(scope="module")
def trainer(tiny_qwen, digits, tmp_path_factory):
    return unstarted_trainer(tiny_qwen, digits.train, tmp_path_factory.mktemp("built"), beta=0.04)


def zeroed(monkeypatch, name):
    """As a rank has it that loads nothing because rank 0 does."""
    original = grpo.GRPOTrainer.train

    def train(trainer, *args, **kwargs):
        with torch.no_grad():
            for parameter in getattr(trainer, name).parameters():
                parameter.zero_()
        return original(trainer, *args, **kwargs)

    monkeypatch.setattr(grpo.GRPOTrainer, "train", train)


def test_a_reference_of_zeros_ends_the_run_at_the_start(tiny_qwen, digits, tmp_path, monkeypatch):
    zeroed(monkeypatch, "ref_model")
    with pytest.raises(RefusedError, match=r"reference model has other weights.*rank 0: .* all zero"):
        figures(tiny_qwen, digits.train, tmp_path, **KL)


def test_a_teacher_of_zeros_ends_the_run_at_the_start(tiny_qwen, digits, tmp_path, monkeypatch):
    zeroed(monkeypatch, "teacher_model")
    teacher = {"teacher_model": tiny_qwen, "teacher_model_type": "qwen2_5_vl", "teacher_kl_coef": 0.5}
    with pytest.raises(RefusedError, match="the teacher has other weights"):
        figures(tiny_qwen, digits.train, tmp_path, beta=0, **teacher)


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


def test_each_difference_is_counted(trainer):
    ours, theirs = trainer.model, trainer.ref_model
    assert difference(ours, theirs) == ""
    assert difference(ours.to(torch.float64), theirs.to(torch.bfloat16)) == ""
    ours.float()
    with torch.no_grad():
        name, parameter = next(item for item in theirs.named_parameters() if "norm" in item[0])
        parameter.mul_(2)
    words = difference(ours, theirs)
    assert words.startswith("1 of ")
    assert words.endswith(f"the first is {name}")
