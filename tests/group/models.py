"""Tiny random models of both families, and batches of images and text for them, without the host."""

from dataclasses import dataclass
from inspect import signature

import torch
from transformers import Ovis2ForConditionalGeneration, Qwen2_5_VLForConditionalGeneration

from swift_grpo_ext.testing import tiny_config
from tests.group.batches import collate

VOCAB, IMAGE = 96, 90
IDS = {
    "qwen2_5_vl": ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"),
    "ovis2": ("<IMG_ATOM>", "<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>"),
}
MERGED = {1: (2, 3), 2: (1, 4), 3: (3, 2)}  # height and width in tokens of the Qwen images 1, 2 and 3
INITIAL = 0.2  # a spread of weights at which attention is far from uniform


@dataclass(frozen=True)
class Picture:
    """Image number ``seed``; equal numbers are equal images."""

    seed: int


class Qwen:
    @staticmethod
    def model():
        return _build(Qwen2_5_VLForConditionalGeneration, _config("qwen2_5_vl"))

    @staticmethod
    def tokens(picture):
        height, width = MERGED[picture.seed]
        return [92, *[IMAGE] * (height * width), 93]

    @staticmethod
    def media(pictures):
        if not pictures:
            return {}
        grid = torch.tensor([[1, 2 * MERGED[one.seed][0], 2 * MERGED[one.seed][1]] for one in pictures])
        pixels = [
            _noise(one.seed, int(shape.prod()), 3 * 2 * 14 * 14)
            for one, shape in zip(pictures, grid, strict=True)
        ]
        return {"pixel_values": torch.cat(pixels), "image_grid_thw": grid}

    @staticmethod
    def positions(model, inputs):
        types = (inputs["input_ids"] == IMAGE).long()
        grid = inputs.get("image_grid_thw")
        # transformers 4 finds out by itself which tokens are an image's.
        given = {"mm_token_type_ids": types}
        takes = signature(model.model.get_rope_index).parameters
        given = {name: value for name, value in given.items() if name in takes}
        positions, _ = model.model.get_rope_index(
            inputs["input_ids"], image_grid_thw=grid, attention_mask=inputs["attention_mask"], **given
        )
        return {"position_ids": positions, **given}


class Ovis2:
    @staticmethod
    def model():
        return _build(Ovis2ForConditionalGeneration, _config("ovis2"))

    @staticmethod
    def tokens(picture):
        return [91, *([IMAGE] * 4 + [93]) * picture.seed, 95]  # as many tiles as its number

    @staticmethod
    def media(pictures):
        if not pictures:
            return {}
        return {"pixel_values": torch.cat([_noise(one.seed, one.seed, 3, 56, 56) for one in pictures])}

    @staticmethod
    def positions(model, inputs):
        return {}


FAMILIES = {"qwen2_5_vl": Qwen, "ovis2": Ovis2}


def batch_of(family, model, rows, side="right"):
    """Inputs and completion mask of rows ``(prompt, completion)``; a prompt mixes tokens and `Picture`s."""
    pictures = [part for prompt, _ in rows for part in prompt if isinstance(part, Picture)]
    tokens = [([token for part in prompt for token in _tokens(family, part)], done) for prompt, done in rows]
    inputs = collate(tokens, side)
    mask = inputs.pop("completion_mask")
    inputs |= family.media(pictures)
    return inputs | family.positions(model, inputs), mask


def _tokens(family, part):
    return family.tokens(part) if isinstance(part, Picture) else [part]


def _noise(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _config(family):
    ids = {token: IMAGE + number for number, token in enumerate(IDS[family])}
    return tiny_config(family, ids, vocab_size=VOCAB, eos_token_id=1, initializer_range=INITIAL)


def _build(model_class, config):
    torch.manual_seed(0)
    model = model_class._from_config(config, attn_implementation="sdpa")
    for name, parameter in model.named_parameters():
        if any(part in name for part in ("visual", "vision_tower")):
            parameter.requires_grad_(False)
    return model.train()
