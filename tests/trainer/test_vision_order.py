"""Ranks with and without images come to the same collectives in the same order, else ZeRO-3 hangs."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from swift_grpo_ext.group.vision import assign
from swift_grpo_ext.models.facts import QWEN2_5_VL
from swift_grpo_ext.trainer.vision_once import VisionOnce

HIDDEN = 4


class Tower(nn.Module):
    def __init__(self, events):
        super().__init__()
        self.events = events

    def forward(self, pixels, grid_thw=None):
        self.events.append("tower")  # under ZeRO-3, a gather of its parameters
        return torch.ones(len(pixels), HIDDEN)


class Model(nn.Module):
    def __init__(self, events):
        super().__init__()
        self.model = nn.Module()
        self.model.visual = Tower(events)
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(hidden_size=HIDDEN))


def events_of_a_rank(images, most):
    """What a rank does for a forward over ``images``, when ``most`` of one rank's media are new."""
    events = []

    def agree(number):
        events.append("agree")
        assert number <= most
        return most

    model = Model(events)
    vision = VisionOnce(QWEN2_5_VL, 2**20, agree)
    wanted = [(images, range(len(images.keys)))] if images else []
    with vision.standing_in(model, wanted):
        model.model.visual(torch.zeros(1, 3), grid_thw=torch.tensor([[1, 1, 1]]))
    return events


@pytest.mark.parametrize("most", [1, 2])
def test_a_rank_without_images_keeps_step_with_one_that_has_some(most):
    pixels = torch.arange(6.0).reshape(2, 3)
    images = assign(torch.tensor([1, 1]), pixels, torch.tensor([[1, 1, 1], [1, 1, 1]]))
    ours, theirs = events_of_a_rank(images, most), events_of_a_rank(None, most)
    assert ours == theirs == ["agree"] + ["tower"] * most
