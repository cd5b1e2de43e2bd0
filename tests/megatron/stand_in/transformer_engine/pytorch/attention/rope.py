"""Stands in for rotary embedding: sbhd, bshd, and thd where each sequence begins at position 0."""

import torch


def apply_rotary_pos_emb(
    t,
    freqs,
    tensor_format="sbhd",
    interleaved=False,
    fused=False,
    cu_seqlens=None,
    cp_size=1,
    cp_rank=0,
    start_positions=None,
):
    """Rotate the first ``freqs.shape[-1]`` channels of each head."""
    if cp_size != 1 or interleaved:
        raise NotImplementedError("context parallelism and interleaved rotary embedding")
    if tensor_format == "thd":
        rows = torch.split(t, cu_seqlens.diff().tolist())
        turned = [apply_rotary_pos_emb(row.unsqueeze(1), freqs[: len(row)]).squeeze(1) for row in rows]
        return torch.cat(turned)
    if tensor_format == "bshd":
        return apply_rotary_pos_emb(t.transpose(0, 1), freqs).transpose(0, 1)
    width = freqs.shape[-1]
    freqs = freqs[: t.shape[0]]
    turned, rest = t[..., :width], t[..., width:]
    first, second = turned.chunk(2, dim=-1)
    half = torch.cat((-second, first), dim=-1)
    turned = turned * freqs.cos().to(t.dtype) + half * freqs.sin().to(t.dtype)
    return torch.cat((turned, rest), dim=-1)
