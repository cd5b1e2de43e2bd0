"""The vision tower of Megatron's models, once for each distinct image of a generation batch.

mcore-bridge keeps transformers' tower on the first pipeline stage, whole on every tensor-parallel rank, in
an object, `HuggingFaceVit`, that encodes pixels and puts their features among the embeddings.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from swift_grpo_ext.group.media import Family, Medium
from swift_grpo_ext.group.micro_batch import MicroBatch
from swift_grpo_ext.group.vision import Images
from swift_grpo_ext.group.vision_once import VisionOnce
from swift_grpo_ext.models.families import VisionFamily
from swift_grpo_ext.trainer.features import FREEZE, why_encoded_again


@dataclass(frozen=True)
class _Seat:
    """A family's encoder where mcore-bridge has put it."""

    media: tuple[Medium, ...]
    encoder: tuple[str, str]


def towers_of(models: Sequence[nn.Module]) -> list[Any]:
    """The objects that encode images, of those models that have one: they are on the first stage."""
    candidates = (getattr(part, "visual", None) for model in models for part in model.modules())
    return [tower for tower in candidates if isinstance(getattr(tower, "module_mapping", None), dict)]


def encoder_in(tower: Any, family: VisionFamily) -> tuple[str, str] | None:
    """Path, in the object with the tower, and method that encode pixels; None if unknown."""
    path, method = family.encoder
    for theirs, ours in tower.module_mapping.items():
        if path == theirs or path.startswith(f"{theirs}."):
            return f"{ours}{path[len(theirs) :]}", method
    name = next((name for name in (method, "extract_feature") if hasattr(tower, name)), None)
    return ("", name) if name else None


def why_not_once(
    models: Sequence[nn.Module], references: Sequence[nn.Module], family: VisionFamily | None
) -> str:
    """Reason why every pass encodes images, in a clause; empty if once is enough, and on later stages."""
    towers = towers_of(models)
    if family is None:
        return "nothing is known about images of the family"
    for tower in towers:
        if encoder_in(tower, family) is None:
            return f"nothing is known about {type(tower).__name__}, which encodes the images"
        if any(parameter.requires_grad for parameter in tower.parameters()):
            return f"the vision tower or the aligner trains{FREEZE}"
    return why_encoded_again(towers, towers_of(references))


def _no_blank() -> Images:
    raise AssertionError("no rank waits for another one in Megatron's tower")


class Vision:
    """Features of the images of training's, or of evaluation's, generation batches; keeps ``limit`` bytes."""

    def __init__(self, models: Sequence[nn.Module], family: VisionFamily, limit: int) -> None:
        self._towers = towers_of(models)
        encoder = encoder_in(self._towers[0], family) if self._towers else None
        seat: Family = _Seat(family.media, encoder or ("", ""))
        self._once = VisionOnce(seat, limit, lambda number: number, _no_blank)

    def clear(self) -> None:
        """A new generation batch has other images."""
        self._once.cache.clear()

    @contextmanager
    def standing_in(self, batch: MicroBatch) -> Iterator[None]:
        """While this is open, models get the features of a micro-batch's images for their pixels."""
        with ExitStack() as stack:
            for tower in self._towers:
                stack.enter_context(self._once.standing_in(tower, batch.wanted()))
            yield
