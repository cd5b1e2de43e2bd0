"""Attention over rows laid end to end, on a CPU: stands in for flash attention's variable-length kernel."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "selftest_segments"


def attend_segments(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    cu_seq_lens_q: Tensor | None = None,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Attention of each segment to itself alone, ``(batch, seq, heads, head_dim)``, by SDPA. Without bounds,
    ``cu_seq_lens_q``, the mask has them: transformers makes it from position ids that start again.
    """
    if cu_seq_lens_q is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    parts = [
        sdpa_attention_forward(module, *(t[:, :, start:end] for t in (query, key, value)), None, **kwargs)[0]
        for start, end in pairwise(cu_seq_lens_q.tolist())
    ]
    return torch.cat(parts, dim=1), None


def register() -> None:
    """Let ``--attn_impl`` know it."""
    AttentionInterface.register(NAME, attend_segments)
    AttentionMaskInterface.register(NAME, sdpa_mask)
