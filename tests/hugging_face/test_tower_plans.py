"""Plans of a tower that are made in main memory are those that it makes itself, and its module is left as it was."""

import sys

import pytest
import torch
from transformers import AutoModelForImageTextToText

from swift_grpo_ext import testing
from swift_grpo_ext.hugging_face.tower_plans import planned_in_main_memory

GRID = torch.tensor([[1, 8, 4], [1, 4, 12]])


def tower_of(family, folder):
    model = AutoModelForImageTextToText.from_pretrained(testing.tiny_checkpoint(family, folder))
    return model.model.visual


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_features_are_the_same(family, tmp_path):
    tower = tower_of(family, tmp_path)
    module = sys.modules[type(tower).__module__]
    before = dict(vars(module))
    config = tower.config
    side = config.temporal_patch_size * config.patch_size**2 * config.in_channels
    pixels = torch.randn(int(GRID.prod(-1).sum()), side)
    planned = planned_in_main_memory(tower, tower.forward)
    expected, found = (forward(pixels, grid_thw=GRID) for forward in (tower.forward, planned))
    assert torch.equal(found.pooler_output, expected.pooler_output)
    assert dict(vars(module)) == before


def test_others_are_left_as_they_are(tmp_path):
    tower = tower_of("glm4v_moe", tmp_path)
    forward = tower.forward
    assert planned_in_main_memory(tower, forward) is forward
