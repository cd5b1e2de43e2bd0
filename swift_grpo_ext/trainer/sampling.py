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
from jaxtyping import Shaped
from torch import Tensor
from transformers import PreTrainedModel

from swift_grpo_ext.group.media import GRIDS_OF
from swift_grpo_ext.group.prefill import encoding_inside, shared_prefill
from swift_grpo_ext.group.tower_calls import Wanted, encode_blank, encoder_of
from swift_grpo_ext.group.vision import Images
from swift_grpo_ext.group.vision_once import VisionOnce
from swift_grpo_ext.models.families import VisionFamily
from swift_grpo_ext.trainer.distributed import agreed_max, gathers_parameters
from swift_grpo_ext.trainer.host import Host


def ranks_in_step(
    host: Host, base: PreTrainedModel, family: VisionFamily | None, blank: Callable[[], Images] | None
) -> AbstractContextManager[None]:
    """While this is open, every rank runs the tower equally often, if parameters are gathered for it."""
    args = host.args
    device = host.accelerator.device
    at_once = not host.is_fsdp_enabled and args.ds3_gather_for_generation
    if args.use_vllm or at_once or not gathers_parameters(host):
        return nullcontext()
    if family is None or blank is None:
        return in_step(base, lambda calls: calls, lambda: None)

    def encode() -> object:
        owner, name = encoder_of(base, family)
        call = owner if name == "forward" else getattr(owner, name)  # through its hooks, which gather
        with torch.no_grad():
            return encode_blank(base, call, blank(), of_tower=name == "forward")

    return in_step(base, lambda calls: agreed_max(calls, device), encode)


@contextmanager
def sampled_once(
    host: Host,
    base: PreTrainedModel,
    family: VisionFamily | None,
    vision: VisionOnce | None,
    blank: Callable[[], Images] | None,
    shared: bool,
    tell: Callable[[str], None],
) -> Iterator[None]:
    """While this is open, a prompt is computed once for its completions, and ranks are in step.

    If prompts are not ``shared``, only ``generate`` is kept from encoding images that nobody would read (F24
    of docs/findings.md). ``blank`` is the image of ranks that wait for others; ``tell`` gets the reason when
    a batch is not shared.
    """

    def encoding(wanted: Wanted) -> AbstractContextManager[None]:
        return vision.standing_in(base, wanted) if vision else nullcontext()

    media = family.media if family else ()
    once = shared_prefill(base, media, encoding, tell) if shared else encoding_inside(base)
    with ranks_in_step(host, base, family, blank), once:
        yield


@contextmanager
def in_step(
    base: PreTrainedModel, agree: Callable[[int], int], encode_blank: Callable[[], object]
) -> Iterator[None]:
    """While this is open, each prefill runs the tower as often as on the rank with most images."""
    forward = base.forward
    blanks = 0

    def agreeing(*args: object, **kwargs: Shaped[Tensor, "..."]) -> object:
        nonlocal blanks
        cache = kwargs.get("past_key_values")
        if cache is None or cache.get_seq_length() == 0:
            # Before all else: the tower's gather on one rank must not meet this collective on another.
            calls = sum(kwargs.get(pixels) is not None for pixels in GRIDS_OF)
            blanks = agree(calls) - calls
        with torch.inference_mode(False), torch.no_grad():
            return forward(*args, **kwargs)

    def fill_up(*_args: object) -> None:
        nonlocal blanks
        for _ in range(blanks):
            encode_blank()
        blanks = 0

    # Where the others have run the tower too, and before DeepSpeed's hook gathers for the language model.
    hook = base.get_decoder().register_forward_pre_hook(fill_up, prepend=True)
    try:
        with encoding_inside(base, agreeing):
            yield
    finally:
        hook.remove()
