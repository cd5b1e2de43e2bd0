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


@dataclass(frozen=True)
class Work:
    """Multiply-adds of a model; a pair is two tokens, or patches, of which one sees the other."""

    patch: float  # of the tower, for each patch
    merged: float  # behind the tower's blocks, for each token of the image
    patch_pair: float  # of one block of the tower
    full_blocks: int  # of the tower, over the whole image
    windowed_blocks: int
    token: float  # of all layers of the language model, states of recurrent layers included
    pair: float  # of all its layers that attend
    head: float  # of the output layer, for each token


def work_of(shape: Shape) -> Work:
    """By the arithmetic of Qwen2.5-VL, of which Ovis2 is near enough."""
    width = shape.vision_hidden_size
    block = 4 * width * width + 3 * width * shape.vision_intermediate_size
    merged = PATCHES_PER_TOKEN * width
    return Work(
        patch=shape.vision_depth * block + PATCH_VALUES * width,
        merged=merged * (merged + shape.hidden_size),
        patch_pair=2 * width,
        full_blocks=shape.full_attention_blocks,
        windowed_blocks=shape.vision_depth - shape.full_attention_blocks,
        token=shape.num_layers * shape.layer,
        pair=2 * shape.num_layers * shape.hidden_size,
        head=shape.head,
    )


def _tower(work: Work, case: Case) -> float:
    """Multiply-adds of the frozen tower over one image."""
    patches = case.image_tokens * PATCHES_PER_TOKEN
    pairs = work.full_blocks * patches**2 + work.windowed_blocks * patches * min(WINDOW, patches)
    return patches * work.patch + pairs * work.patch_pair + case.image_tokens * work.merged


def _passes(case: Case, old: bool) -> tuple[int, int]:
    """Forwards' worth of the layers and of the output layer: no-grad passes, forward and backward.

    The backward pass counts as two forwards, with LoRA as one; the recomputation of checkpointing as one.
    """
    once = int(old) + int(case.beta > 0) + (2 if case.lora else 3)
    return once + int(case.checkpointing), once


def operations(work: Work, case: Case) -> tuple[float, float]:
    """Multiply-adds of the update phase: stock, and with prompt and image computed once and no old pass.

    Recomputing logits chunk by chunk is not counted as necessary, so the bound is that of the best program.
    """
    prompt, tail, group = case.prompt, case.completion, case.group
    length = prompt + tail
    head = group * tail * work.head
    layers, heads = _passes(case, old=True)
    rows = group * length * work.token + group * length**2 / 2 * work.pair
    stock = layers * rows + heads * head + (2 + int(case.beta > 0)) * group * _tower(work, case)
    layers, heads = _passes(case, old=False)
    pairs = prompt**2 / 2 + group * (tail * prompt + tail**2 / 2)
    pack = (prompt + group * (tail - 1)) * work.token + pairs * work.pair
    return stock, layers * pack + heads * head + _tower(work, case)


def bound(work: Work, case: Case) -> float:
    """How many times fewer operations the update phase needs."""
    stock, ours = operations(work, case)
    return stock / ours
