"""Sampling while parameters are gathered module by module: every rank runs the tower equally often.

``generate`` runs the tower for batches with images only. Where its parameters are gathered when it runs
(ZeRO-3 with ``--ds3_gather_for_generation false``, FSDP), a rank whose batch has no image would go on to the
language model while the others wait in the tower's gather. It encodes a blank image there instead.

Nor may they be gathered in inference mode, in which the host's engine generates: DeepSpeed keeps small ones,
and autograd cannot save them ("Inference tensors cannot be saved for backward").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from PIL import Image
from torch import Tensor

from swift_grpo_ext.group.family import GRIDS_OF
from swift_grpo_ext.group.prefill import encoding_inside
from swift_grpo_ext.group.vision_once import encoder_of
from swift_grpo_ext.models.families import VisionFamily

if TYPE_CHECKING:
    from swift.template import Template
    from transformers import PreTrainedModel

_BLANK = Image.new("RGB", (112, 112))  # a multiple of every patch size


@contextmanager
def in_step(
    base: PreTrainedModel, agree: Callable[[int], int], encode_blank: Callable[[], object]
) -> Iterator[None]:
    """While this is open, each prefill of ``base`` runs the tower as often as on the rank with most images.

    Args:
        agree: The largest of a number over all ranks; they all call it once for each prefill.
    """
    forward, blanks = base.forward, [0]

    def agreeing(*args: object, **kwargs: Tensor) -> object:
        cache = kwargs.get("past_key_values")
        if cache is None or cache.get_seq_length() == 0:
            # Before all else: the tower's gather on one rank must not meet this collective on another.
            calls = sum(kwargs.get(pixels) is not None for pixels in GRIDS_OF)
            blanks[0] = agree(calls) - calls
        with torch.inference_mode(False), torch.no_grad():
            return forward(*args, **kwargs)

    def fill_up(*_args: object) -> None:
        for _ in range(blanks[0]):
            encode_blank()
        blanks[0] = 0

    # Where the others have run the tower too, and before DeepSpeed's hook gathers for the language model.
    hook = base.get_decoder().register_forward_pre_hook(fill_up, prepend=True)
    try:
        with encoding_inside(base, agreeing):
            yield
    finally:
        hook.remove()


def blank_encoder(base: PreTrainedModel, template: Template, facts: VisionFamily) -> Callable[[], object]:
    """What encodes a blank image, prepared as the template prepares any other."""
    tensors, _, _ = template.prepare_image(_BLANK)
    grids = {"grid_thw": tensors["image_grid_thw"].to(base.device)} if "image_grid_thw" in tensors else {}

    def encode() -> object:
        owner, name = encoder_of(base, facts)
        call = owner if name == "forward" else getattr(owner, name)  # through its hooks, which gather
        with torch.no_grad():
            return call(tensors["pixel_values"].to(base.device, base.dtype), **grids)

    return encode
