"""A completion on its way through a run: ms-swift's sample, with what we know of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from swift.rl_core.data import GRPOBatch, GRPOSample
from torch import Tensor

from swift_grpo_ext.errors import RefusedError


@dataclass(frozen=True)
class Claim:
    """What an engine said of one completion."""

    prompt: Sequence[int]  # token ids of the prompt that it saw; empty if it does not tell
    tokens: Sequence[int]  # ids that it sampled
    logps: Sequence[float]  # their log-probs, in nats; the last ones may be missing
    sizes: Sequence[Sequence[int]] = ()  # (width, height) of each image seen; empty if it does not tell


@dataclass
class VisionSample(GRPOSample):
    """ms-swift's sample of one completion.

    Attributes:
        prompt_key: Equal for samples of the same prompt, images included; decided where rows become samples.
    """

    prompt_key: str = ""
    held_placeholder: bool = False  # the engine answered with image placeholders, which have been cut away
    kept: bool = True  # the completion takes part in the update
    claim: Claim | None = None  # what the engine said of it; None of several turns, and where nobody asks

    @classmethod
    def from_row(cls, row: Mapping[str, object]) -> VisionSample:
        """A sample of a dataset row; columns with the names of our fields are the dataset's own."""
        theirs = {name: value for name, value in row.items() if name not in _OURS}
        sample: VisionSample = super().from_row(theirs)
        sample.extra.update({name: copy.deepcopy(row[name]) for name in _OURS if name in row})
        return sample


Samples = list[VisionSample]
Batch = dict[str, GRPOBatch]  # ms-swift's micro-batch, with the inputs of the model
Batches = list[Batch]
Inputs = dict[str, Tensor]
_OURS = {field.name for field in fields(VisionSample)} - {field.name for field in fields(GRPOSample)}


def require_sample_hook(trainer: type) -> None:
    """Refuse a trainer of ms-swift that makes its samples itself.

    Raises RefusedError: It has no ``sample_cls``.
    """
    if not hasattr(trainer, "sample_cls"):
        raise RefusedError(
            "this ms-swift has no sample_cls, through which a trainer gets samples of its own",
            where=f"{trainer.__module__}.{trainer.__qualname__}",
            fix="install ms-swift >=4.5,<4.7, or set SWIFT_GRPO_EXT_DISABLE=trainer",
        )
