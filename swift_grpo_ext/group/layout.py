"""Where the prompts and completions of a pack lie. Stands in for the attention mask of a packed forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Span:
    """One group in a pack: ``prompt`` tokens from ``start`` on, then ``completions`` (tokens of each)."""

    start: int
    prompt: int
    completions: tuple[int, ...]

    @property
    def stop(self) -> int:
        """One past the last token."""
        return self.start + self.prompt + sum(self.completions)


@dataclass(frozen=True)
class PackLayout:
    """Spans of a pack and the function that attends over them.

    Attributes:
        spans: Groups, one after another without a gap.
        backend: A key of `swift_grpo_ext.group.attention.BACKENDS`.
        cache: Index tensors and masks, made once for all layers and passes.
    """

    spans: tuple[Span, ...]
    backend: str
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def length(self) -> int:
        """T, the tokens of the pack."""
        return self.spans[-1].stop

    @property
    def segments(self) -> list[tuple[int, int, int]]:
        """``(group, branch, length)`` of each run of tokens in order; branch 0 is the prompt."""
        return [
            (group, branch, length)
            for group, span in enumerate(self.spans)
            for branch, length in enumerate((span.prompt, *span.completions))
        ]

    def branches(self) -> tuple[Tensor, Tensor]:
        """``(T,)`` number of each token's group, and ``(T,)`` of its completion in it (0: the prompt)."""
        group, branch, length = torch.tensor(self.segments).unbind(1)
        return group.repeat_interleave(length), branch.repeat_interleave(length)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """``make()``, kept under ``key``."""
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]


def visible(layout: PackLayout) -> Tensor:
    """``(T, T)`` mask on the CPU, True where the query of the row may look at the key of the column."""
    group, branch = layout.branches()
    at = torch.arange(len(group))
    same_branch = (branch == 0) | (branch[:, None] == branch)
    return (group[:, None] == group) & (at[:, None] >= at) & same_branch
