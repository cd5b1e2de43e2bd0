"""Ranks with and without images come to the same collectives in the same order, else ZeRO-3 hangs."""

import inspect
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from swift_grpo_ext.group.tower_calls import TowerCalls
from swift_grpo_ext.group.vision import Images, assign
from swift_grpo_ext.group.vision_once import VisionOnce
from swift_grpo_ext.models.families.qwen2 import QWEN2_5_VL
from swift_grpo_ext.trainer.sampling import in_step

HIDDEN = 4
BLANK = assign(torch.ones(1, 1).bool(), torch.zeros(1, 3), torch.tensor([[1, 1, 1]]))


class Tower(nn.Module):
    def __init__(self, events):
        super().__init__()
        self.events = events

    def forward(self, pixels, grid_thw=None):
        self.events.append("tower")  # under ZeRO-3, a gather of its parameters
        return torch.ones(len(pixels), HIDDEN)


class Noted(nn.Module):
    """A module that says when it ran."""

    def __init__(self, name, events):
        super().__init__()
        self.name, self.events = name, events

    def forward(self, **inputs):
        self.events.append(self.name)


class Model(nn.Module):
    """The order in which the models of both families call their parts."""

    def __init__(self, events):
        super().__init__()
        self.model = nn.Module()
        self.model.visual = Tower(events)
        self.embed, self.decoder = Noted("embed", events), Noted("decoder", events)
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(hidden_size=HIDDEN))

    def get_decoder(self):
        return self.decoder

    def forward(self, pixel_values=None, pixel_values_videos=None, past_key_values=None, **inputs):
        self.embed()
        for pixels in (pixel_values, pixel_values_videos):
            if pixels is not None:
                self.model.visual(pixels)
        self.decoder(past_key_values=past_key_values)

    def generate(self, **inputs):
        """As transformers: where the forward takes them, images are encoded before everything else."""
        if "mm_encoder_outputs" in inspect.signature(self.forward).parameters:
            self.model.visual(inputs.pop("pixel_values"))
        self(**inputs)
        self(past_key_values=Cache(3))


class Early(Model):
    def forward(self, mm_encoder_outputs=None, **inputs):
        super().forward(**inputs)


class Cache:
    def __init__(self, length):
        self.length = length

    def get_seq_length(self):
        return self.length


def events_of_a_rank(kind, images, most, made_up):
    """What a rank does for a forward over ``images``, when ``most`` of one rank's media are new.

    Of text alone some models run the tower over a ``made_up`` image, and others do not run it.
    """
    events = []

    def agree(number):
        events.append("agree")
        assert number <= most
        return most

    model = Model(events)
    vision = kind(QWEN2_5_VL, agree)
    wanted = [(images, range(len(images.keys)))] if isinstance(images, Images) else images
    given = torch.zeros(1, 3) if made_up or images != [] else None
    with vision.standing_in(model, wanted):
        model(pixel_values=given)
    return events


def once(family, agree):
    return VisionOnce(family, 2**20, agree, lambda: BLANK)


def each_time(family, agree):
    return TowerCalls(family, lambda: BLANK, agree, always=False)


@pytest.mark.parametrize("made_up", [True, False])
@pytest.mark.parametrize("kind", [once, each_time])
@pytest.mark.parametrize("most", [1, 2])
def test_a_rank_without_images_keeps_step_with_one_that_has_some(most, kind, made_up):
    pixels = torch.arange(6.0).reshape(2, 3)
    images = assign(torch.ones(2, 1).bool(), pixels, torch.tensor([[1, 1, 1], [1, 1, 1]]))
    ranks = [events_of_a_rank(kind, wanted, most, made_up) for wanted in (images, [], None)]
    assert ranks == [["agree", "embed", *["tower"] * most, "decoder"]] * 3


@pytest.mark.parametrize("kind", [once, each_time])
def test_no_rank_runs_the_tower_for_text_alone(kind):
    assert events_of_a_rank(kind, [], 0, made_up=True) == ["agree", "embed", "decoder"]


@pytest.mark.parametrize("kind", [Model, Early])
def test_ranks_sample_in_step(kind):
    pixels = torch.zeros(1, 3)
    of_ranks = [{}, {"pixel_values": pixels}, {"pixel_values": pixels, "pixel_values_videos": pixels}]
    seen = []
    for inputs in of_ranks:
        events = []

        def agree(number, events=events):
            events.append("agree")
            return 2

        model = kind(events)
        with in_step(model, agree, lambda model=model: model.model.visual(pixels)):
            model.generate(**inputs)
        assert "forward" not in vars(model)
        seen.append(events)
    assert seen == [["agree", "embed", "tower", "tower", "decoder", "embed", "decoder"]] * 3


def test_no_features_are_kept_with_the_form_of_the_answer():
    """A view of none of their rows would hold all of them."""
    images = assign(torch.ones(1, 1).bool(), torch.zeros(1, 3), torch.tensor([[1, 1, 1]]))
    model, vision = Model([]), once(QWEN2_5_VL, int)
    with vision.standing_in(model, [(images, [0])]):
        found = model.model.visual(torch.zeros(1, 3))
    assert found.shape == (1, HIDDEN)
    assert vision._form.untyped_storage().nbytes() == 0
