"""Sampling while parameters are gathered module by module: every rank runs the tower equally often.

``generate`` runs the tower for batches with images only. Where its parameters are gathered when it runs
(ZeRO-3 with ``--ds3_gather_for_generation false``, FSDP), a rank whose batch has no image would go on to the
language model while the others wait in the tower's gather. It encodes a blank image there instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from PIL import Image
from torch import nn

from swift_grpo_ext.group.prefill import encoding_inside
from swift_grpo_ext.models.facts import VisionFacts
from swift_grpo_ext.trainer.vision_once import encoder_of

_BLANK = Image.new("RGB", (112, 112))  # a multiple of every patch size


@contextmanager
def in_step(
    base: Any, facts: VisionFacts, agree: Callable[[int], int], encode_blank: Callable[[], Any]
) -> Iterator[None]:
    """While this is open, each prefill of ``base`` runs the tower as often as on the rank with most images.

    Args:
        base: The model that generates, out of its wrappers.
        facts: Its family.
        agree: The largest of a number over all ranks; they all call it once for each prefill.
        encode_blank: Runs the tower over a blank image.
    """
    calls: list[nn.Module] = []

    def count(tower: nn.Module, *_: Any) -> None:
        calls.append(tower)

    def fill_up(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        cache = kwargs.get("past_key_values")
        if cache is not None and cache.get_seq_length() > 0:
            return  # a later step
        for _ in range(agree(len(calls)) - len(calls)):
            encode_blank()
        calls.clear()

    (path,) = facts.vision_tower
    hooks = [
        base.get_submodule(path).register_forward_pre_hook(count),
        # Before DeepSpeed's own hook, which gathers for the language model.
        base.get_decoder().register_forward_pre_hook(fill_up, prepend=True, with_kwargs=True),
    ]
    try:
        with encoding_inside(base):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def blank_encoder(base: Any, template: Any, facts: VisionFacts) -> Callable[[], Any]:
    """What encodes a blank image, prepared as the template prepares any other."""
    tensors, _, _ = template.prepare_image(_BLANK)
    grids = {"grid_thw": tensors["image_grid_thw"].to(base.device)} if "image_grid_thw" in tensors else {}

    def encode() -> Any:
        owner, name = encoder_of(base, facts)
        with torch.no_grad():
            return getattr(owner, name)(tensors["pixel_values"].to(base.device, base.dtype), **grids)

    return encode
