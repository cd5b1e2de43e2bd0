"""Operations of the update phase: how much less there is to do when nothing is done twice.

Needs nothing but the standard library.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench_shapes import PATCH_VALUES, PATCHES_PER_TOKEN, WINDOW, Shape


@dataclass(frozen=True)
class Case:
    """One group: ``group`` completions of ``completion`` tokens on a prompt of image and text tokens.

    With ``lora`` the weights have no gradients; what the adapters themselves cost is not counted.
    """

    group: int = 8
    image_tokens: int = 576
    text_tokens: int = 42
    completion: int = 128
    beta: float = 0.04
    checkpointing: bool = True
    lora: bool = False

    @property
    def prompt(self) -> int:
        """P, tokens of the prompt."""
        return self.image_tokens + self.text_tokens

    @property
    def grid(self) -> tuple[int, int]:
        """Height and width of the image in patches, as square as the number of tokens allows."""
        sides = range(int(self.image_tokens**0.5), 0, -1)
        height = next(side for side in sides if self.image_tokens % side == 0)
        return 2 * height, 2 * (self.image_tokens // height)


def _tower(shape: Shape, case: Case) -> float:
    """Multiply-adds of the frozen tower over one image."""
    patches, width = case.image_tokens * PATCHES_PER_TOKEN, shape.vision_hidden_size
    block = 4 * width * width + 3 * width * shape.vision_intermediate_size
    windowed = shape.vision_depth - shape.full_attention_blocks
    pairs = shape.full_attention_blocks * patches**2 + windowed * patches * min(WINDOW, patches)
    merged = PATCHES_PER_TOKEN * width
    merger = case.image_tokens * merged * (merged + shape.hidden_size)
    return patches * (shape.vision_depth * block + PATCH_VALUES * width) + 2 * pairs * width + merger


def _language_model(shape: Shape, tokens: int, pairs: float) -> float:
    """Multiply-adds of one forward through all layers."""
    return shape.num_layers * (tokens * shape.layer + 2 * pairs * shape.hidden_size)


def _passes(case: Case, old: bool) -> tuple[int, int]:
    """Forwards' worth of the layers and of the output layer: no-grad passes, forward and backward.

    The backward pass counts as two forwards, with LoRA as one; the recomputation of checkpointing as one.
    """
    once = int(old) + int(case.beta > 0) + (2 if case.lora else 3)
    return once + int(case.checkpointing), once


def operations(shape: Shape, case: Case) -> tuple[float, float]:
    """Multiply-adds of the update phase: stock, and with prompt and image computed once and no old pass.

    Recomputing logits chunk by chunk is not counted as necessary, so the bound is that of the best program.
    """
    prompt, tail, group = case.prompt, case.completion, case.group
    length = prompt + tail
    head = group * tail * shape.head
    layers, heads = _passes(case, old=True)
    rows = _language_model(shape, group * length, group * length**2 / 2)
    stock = layers * rows + heads * head + (2 + int(case.beta > 0)) * group * _tower(shape, case)
    layers, heads = _passes(case, old=False)
    pairs = prompt**2 / 2 + group * (tail * prompt + tail**2 / 2)
    pack = _language_model(shape, prompt + group * (tail - 1), pairs)
    return stock, layers * pack + heads * head + _tower(shape, case)


def bound(shape: Shape, case: Case) -> float:
    """How many times fewer operations the update phase needs."""
    stock, ours = operations(shape, case)
    return stock / ours
