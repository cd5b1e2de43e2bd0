"""What of a trainer is there before it is built."""

from __future__ import annotations

from typing import Any, Protocol


class Unwrapped(Protocol):
    """What of a trainer decides whether prompts are shared."""

    @property
    def model(self) -> Any:
        """The model, not yet wrapped or out of its wrappers."""

    @property
    def template(self) -> Any:
        """Its template."""

    @property
    def args(self) -> Any:
        """The training arguments."""

    @property
    def is_multimodal(self) -> bool:
        """It takes images."""
