"""Masks of layers that do not simply see all tokens before: sliding windows, and images seen as a whole.

Windows are measured in the row's own positions: the first token of a completion stands right behind the last
one of its prompt, wherever it lies in the pack.
"""

from __future__ import annotations

import torch
from torch import Tensor

from swift_grpo_ext.group.layout import PackLayout, Reach, Span


def prompt_mask(layout: PackLayout, span: Span, reach: Reach, device: torch.device) -> Tensor:
    """``(prompt, prompt)`` True where a token of the prompt may look at another."""

    def make() -> Tensor:
        place = torch.arange(span.prompt)
        blocks = layout.block_numbers()[span.start : span.start + span.prompt] if reach.blocks else None
        return _seen(place, place, reach, blocks, blocks).to(device)

    return layout.once(("prompt", span.start, reach, device), make)


def completions_mask(layout: PackLayout, span: Span, reach: Reach, device: torch.device) -> Tensor:
    """``(rows, 1, width, seen + width)`` mask of a group's padded completions; one row for all if it can.

    ``seen`` are the last tokens of the prompt, as many as the window leaves.
    """

    def make() -> Tensor:
        width = max(span.completions)
        seen = span.prompt if reach.window is None else min(span.prompt, reach.window - 1)
        queries = torch.arange(width) + span.prompt
        keys = torch.arange(span.prompt - seen, span.prompt + width)
        own = [row for row in _blocks_of_rows(layout, span, width) if bool((row >= 0).any())]
        if not reach.blocks or not own:
            return _seen(queries, keys, reach, None, None)[None, None].to(device)
        # A run that begins in the prompt is none of a completion's: each is a turn of its own.
        nothing = torch.full((seen,), -1)
        masks = [
            _seen(queries, keys, reach, row, torch.cat([nothing, row]))
            for row in _blocks_of_rows(layout, span, width)
        ]
        return torch.stack(masks)[:, None].to(device)

    return layout.once(("completions", span.start, reach, device), make)


def _blocks_of_rows(layout: PackLayout, span: Span, width: int) -> list[Tensor]:
    """For each completion the ``(width,)`` numbers of its runs of image tokens, -1 in padding."""
    numbers = layout.block_numbers()[span.start + span.prompt : span.stop]
    rows = numbers.split(list(span.completions))
    return [torch.cat([row, torch.full((width - len(row),), -1)]) for row in rows]


def _seen(
    queries: Tensor, keys: Tensor, reach: Reach, query_blocks: Tensor | None, key_blocks: Tensor | None
) -> Tensor:
    ahead = queries[:, None] - keys
    seen = ahead >= 0
    if query_blocks is not None and key_blocks is not None:
        seen |= (query_blocks[:, None] == key_blocks) & (key_blocks >= 0)
    return seen if reach.window is None else seen & (ahead < reach.window)
