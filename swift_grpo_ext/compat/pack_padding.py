"""M2: the padding of a Megatron pack is counted as extra completions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import in_source, patch

if TYPE_CHECKING:
    from torch import Tensor

TARGET = "swift.rlhf_trainers.utils:build_completion_mask_and_seq_lengths"


@patch(
    "M2",
    TARGET,
    fingerprint="labels, batch_size, *, padding_free=, encoded_batch=, device=, logits_to_keep=",
    probe=lambda: not in_source(TARGET, "[:batch_size]"),
    remove_when="ms-swift returns as many rows as there are completions",
)
def fix(
    build: Callable[..., Any],
    labels: Tensor,
    batch_size: int,
    *,
    logits_to_keep: int | None = None,
    **rest: Any,
) -> Any:
    """Return only the rows of completions, in Megatron's frame.

    With sequence parallelism a pack is padded to a multiple of the ranks with tokens at position 0, and each
    of these looks like the start of a row.
    """
    mask, lengths, longest = build(labels, batch_size, logits_to_keep=logits_to_keep, **rest)
    if logits_to_keep is not None:
        return mask, lengths, longest
    return mask[:batch_size], lengths[:batch_size], longest
