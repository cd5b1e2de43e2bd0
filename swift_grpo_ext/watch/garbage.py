"""Is a completion noise? Loops, unknown characters, nothing a reader could use."""

from __future__ import annotations

import zlib

_LEAST = 64
"""Characters below which a text is too short to be told from noise by how well it packs."""
_PACKED = 0.12
"""Prose packs to a third of its size, a loop to a few percent."""
_UNKNOWN = 0.05


def is_garbage(text: str, cut_off: bool) -> bool:
    """True for a loop, or a text with many undecodable characters.

    Args:
        text: Of the completion.
        cut_off: It ran into the length limit; a short loop that ends by itself may be an answer.

    Example:
        >>> is_garbage("the the the the " * 40, cut_off=True)
        True
        >>> is_garbage("There are two cats on the mat.", cut_off=False)
        False
    """
    if not text:
        return cut_off
    if text.count("\N{REPLACEMENT CHARACTER}") > _UNKNOWN * len(text):
        return True
    data = text.encode("utf-8", "replace")
    return cut_off and len(text) >= _LEAST and len(zlib.compress(data)) < _PACKED * len(data)
