"""What of a trainer is there before it is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from swift.rlhf_trainers.arguments import GRPOConfig
    from swift.template import Template
    from transformers import PreTrainedModel


class Unwrapped(Protocol):
    """What of a trainer decides whether prompts are shared."""

    @property
    def model(self) -> PreTrainedModel:
        """The model, not yet wrapped or out of its wrappers."""

    @property
    def template(self) -> Template:
        """Its template."""

    @property
    def args(self) -> GRPOConfig:
        """The training arguments."""

    @property
    def is_multimodal(self) -> bool:
        """It takes images."""
