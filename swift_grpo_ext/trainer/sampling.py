"""Sampling by transformers: each prompt once, and every rank in step where parameters are gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from swift_grpo_ext.group.prefill import encoding_inside, shared_prefill
from swift_grpo_ext.group.vision_once import VisionOnce, Wanted
from swift_grpo_ext.models.families import VisionFamily
from swift_grpo_ext.models.template import VisionTemplate
from swift_grpo_ext.trainer.distributed import agreed_max, gathers_in_sampling
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.vision_lockstep import blank_encoder, in_step

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def ranks_in_step(
    host: Host, base: PreTrainedModel, family: VisionFamily | None
) -> AbstractContextManager[None]:
    """While this is open, every rank runs the tower equally often, if parameters are gathered for it.

    Args:
        family: Its family; None if it is unknown, or a language model.
    """
    if not gathers_in_sampling(host):
        return nullcontext()
    if family is None or not isinstance(host.template, VisionTemplate):
        return in_step(base, lambda calls: calls, lambda: None)
    device = host.accelerator.device
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

    Args:
        vision: Features of the generation batch; None if the model encodes its images itself.
        shared: Prompts are; else only ``generate`` is kept from encoding images that nobody would read (F24
            of docs/findings.md).
        tell: Gets the reason when a batch goes the usual way.
    """

    def encoding(wanted: Wanted) -> AbstractContextManager[None]:
        return vision.standing_in(base, wanted) if vision else nullcontext()

    media = family.media if family else ()
    once = shared_prefill(base, media, encoding, tell) if shared else encoding_inside(base)
    with ranks_in_step(host, base, family), once:
        yield
