"""Sampling by transformers: each prompt once, and every rank in step where parameters are gathered.

``generate`` runs the tower for batches with images only. Where its parameters are gathered when it runs
(ZeRO-3 with ``--ds3_gather_for_generation false``, FSDP), a rank whose batch has no image would go on to the
language model while the others wait in the tower's gather. It encodes a blank image there instead.

Nor may they be gathered in inference mode, in which the host's engine generates: DeepSpeed keeps small ones,
and autograd cannot save them ("Inference tensors cannot be saved for backward").
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel

from swift_grpo_ext.group.media import GRIDS_OF
from swift_grpo_ext.group.prefill import encoding_inside, shared_prefill
from swift_grpo_ext.group.vision_once import VisionOnce, Wanted, encoder_of
from swift_grpo_ext.models.families import VisionFamily
from swift_grpo_ext.models.template import VisionTemplate
from swift_grpo_ext.ms_swift.shared import Template
from swift_grpo_ext.trainer.distributed import agreed_max, gathers_parameters
from swift_grpo_ext.trainer.host import Host


def ranks_in_step(
    host: Host, base: PreTrainedModel, family: VisionFamily | None
) -> AbstractContextManager[None]:
    """While this is open, every rank runs the tower equally often, if parameters are gathered for it."""
    args = host.args
    device = host.accelerator.device
    at_once = not host.is_fsdp_enabled and args.ds3_gather_for_generation
    if args.use_vllm or at_once or not gathers_parameters(host):
        return nullcontext()
    if family is None or not isinstance(host.template, VisionTemplate):
        return in_step(base, lambda calls: calls, lambda: None)
    return in_step(base, lambda calls: agreed_max(calls, device), blank_encoder(base, host.template, family))


@contextmanager
def sampled_once(
    host: Host,
    base: PreTrainedModel,
    family: VisionFamily | None,
    vision: VisionOnce | None,
    shared: bool,
    tell: Callable[[str], None],
) -> Iterator[None]:
    """While this is open, a prompt is computed once for its completions, and ranks are in step.

    If prompts are not ``shared``, only ``generate`` is kept from encoding images that nobody would read (F24
    of docs/findings.md). ``tell`` gets the reason when a batch goes the usual way.
    """

    def encoding(wanted: Wanted) -> AbstractContextManager[None]:
        return vision.standing_in(base, wanted) if vision else nullcontext()

    media = family.media if family else ()
    once = shared_prefill(base, media, encoding, tell) if shared else encoding_inside(base)
    with ranks_in_step(host, base, family), once:
        yield


@contextmanager
def in_step(
    base: PreTrainedModel, agree: Callable[[int], int], encode_blank: Callable[[], object]
) -> Iterator[None]:
    """While this is open, each prefill runs the tower as often as on the rank with most images."""
    forward = base.forward
    blanks = [0]

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
    tensors, _, _ = template.prepare_image(Image.new("RGB", (112, 112)))  # a multiple of every patch size
    grids = {"grid_thw": tensors["image_grid_thw"].to(base.device)} if "image_grid_thw" in tensors else {}

    def encode() -> object:
        owner, name = encoder_of(base, facts)
        call = owner if name == "forward" else getattr(owner, name)  # through its hooks, which gather
        with torch.no_grad():
            return call(tensors["pixel_values"].to(base.device, base.dtype), **grids)

    return encode
