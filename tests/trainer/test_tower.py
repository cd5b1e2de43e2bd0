"""The vision tower does not run for text alone, and what it would have trained by is not made up."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionPatchEmbed

from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.trainer import tower
from tests.trainer.runs import STOCK, figures, mixed_rows, told
from tests.trainer.unstarted_trainer import unstarted_trainer

SAVED = {"max_steps": 2, "save_strategy": "steps", "save_steps": 2, "optim": "sgd", "learning_rate": 0.5}
TRAINED = {"freeze_vit": False, "freeze_aligner": False}
UNCHECKED = {"DISABLE": "trainer.self_check,callbacks.report"}


@pytest.fixture
def text_rows(digits, tmp_path):
    return mixed_rows(digits, tmp_path / "text.jsonl", 0)


@pytest.fixture
def patches(monkeypatch):
    """Patches of each call of the tower."""
    seen = []
    forward = Qwen2_5_VisionPatchEmbed.forward

    def noted(self, pixels):
        seen.append(len(pixels))
        return forward(self, pixels)

    monkeypatch.setattr(Qwen2_5_VisionPatchEmbed, "forward", noted)
    return seen


def weights(folder):
    (path,) = folder.rglob("checkpoint-*/*model.safetensors")
    return load_file(path)


def test_no_call_for_text_alone_and_equal_parameters(tiny_qwen, text_rows, patches, tmp_path):
    stock = figures(tiny_qwen, text_rows, tmp_path / "stock", STOCK, **SAVED)
    assert len(patches) > 0
    patches.clear()
    ours = figures(tiny_qwen, text_rows, tmp_path / "ours", UNCHECKED, **SAVED)
    assert patches == []
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
    theirs = weights(tmp_path / "stock")
    for name, value in weights(tmp_path / "ours").items():
        torch.testing.assert_close(value, theirs[name], atol=5e-6, rtol=0)


def test_a_trained_tower_that_saw_no_picture_is_not_decayed(tiny_qwen, text_rows, patches, tmp_path):
    adam = {**SAVED, **TRAINED, "optim": "adamw_torch", "learning_rate": 0.01, "weight_decay": 0.5}
    figures(tiny_qwen, text_rows, tmp_path / "ours", UNCHECKED, **adam)
    assert patches == []
    before, after = load_file(tiny_qwen / "model.safetensors"), weights(tmp_path / "ours")
    of_tower = [name for name in before if "visual" in name]
    assert of_tower
    assert all(torch.equal(before[name], after[name]) for name in of_tower)
    assert not all(torch.equal(before[name], after[name]) for name in before if name not in of_tower)


@pytest.mark.parametrize(("lacking", "said"), [({}, False), ({"zero3": "ranks would deadlock"}, True)])
def test_a_family_that_zero3_ends_with_is_named(tiny_qwen, digits, tmp_path, monkeypatch, lacking, said):
    """MiniCPM-V with rows of different numbers of images ends in "collective mismatch", or hangs."""
    trainer = unstarted_trainer(tiny_qwen, digits.train, tmp_path)
    family = replace(family_of("qwen2_5_vl"), lacks=lacking)
    monkeypatch.setattr(tower, "gathers_parameters", lambda host: True)
    with told() as messages:
        tower.RunTower(trainer, family)
    assert any("ranks would deadlock. As it is, a run whose rows" in text for text in messages) == said
