"""Stands in for attention, over PyTorch's SDPA.

Kept: the formats sbhd, bshd (whole rows with a mask) and thd (rows end to end, told apart by cu_seqlens), grouped queries, and of
the masks causal, padding, arbitrary and causal_bottom_right. A mask is True where a key is hidden, as in the real one. An
unknown mask, a sliding window, a sink or context parallelism is an error.
"""

import torch
import torch.nn.functional as F
from torch import nn

MASKS = (
    *("no_mask", "causal", "padding", "padding_causal", "arbitrary"),
    *("causal_bottom_right", "padding_causal_bottom_right"),
)


class DotProductAttention(nn.Module):
    def __init__(
        self,
        num_attention_heads,
        kv_channels,
        num_gqa_groups=None,
        attention_dropout=0.0,
        qkv_format="sbhd",
        attn_mask_type="causal",
        window_size=None,
        sequence_parallel=False,
        tp_size=1,
        get_rng_state_tracker=None,
        tp_group=None,
        layer_number=None,
        attention_type="self",
        cp_group=None,
        softmax_scale=None,
        softmax_type="vanilla",
        **unused,
    ):
        super().__init__()
        if softmax_type != "vanilla" or window_size not in (None, (-1, -1), (-1, 0)):
            raise NotImplementedError(f"softmax_type {softmax_type}, window_size {window_size}")
        self.qkv_format = qkv_format
        self.attn_mask_type = attn_mask_type
        self.softmax_scale = softmax_scale
        self.attention_dropout = attention_dropout
        self.cp_comm_type = None

    def set_context_parallel_group(self, group, ranks, stream, comm_type=None):
        if group is not None and torch.distributed.get_world_size(group) > 1:
            raise NotImplementedError("context parallelism")

    def forward(
        self,
        query,
        key,
        value,
        attention_mask=None,
        qkv_format=None,
        cu_seqlens_q=None,
        cu_seqlens_kv=None,
        cu_seqlens_q_padded=None,
        cu_seqlens_kv_padded=None,
        max_seqlen_q=None,
        max_seqlen_kv=None,
        attn_mask_type=None,
        core_attention_bias_type="no_bias",
        core_attention_bias=None,
        **unused,
    ):
        layout = qkv_format or self.qkv_format
        mask_type = attn_mask_type or self.attn_mask_type
        if mask_type not in MASKS:
            raise NotImplementedError(f"attn_mask_type {mask_type}")
        if layout == "thd":
            starts = (
                cu_seqlens_q if cu_seqlens_q_padded is None else cu_seqlens_q_padded,
                cu_seqlens_kv if cu_seqlens_kv_padded is None else cu_seqlens_kv_padded,
            )
            return self._rows(query, key, value, starts, (cu_seqlens_q, cu_seqlens_kv), mask_type)
        if layout == "sbhd":
            query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
        q, k, v = (
            tensor.transpose(1, 2) for tensor in (query, key, value)
        )  # (batch, head, position, channel)
        mask = None
        if mask_type == "arbitrary" or ("padding" in mask_type and attention_mask is not None):
            mask = ~attention_mask
        if "causal" in mask_type and (mask is not None or q.shape[2] != k.shape[2]):
            below = _below(q, k, k.shape[2] - q.shape[2])
            mask = below if mask is None else mask & below
        if core_attention_bias is not None:
            bias = core_attention_bias.to(q.dtype)
            mask = bias if mask is None else bias.masked_fill(~mask, torch.finfo(q.dtype).min)
        made = self._attend(q, k, v, mask, "causal" in mask_type and mask is None).transpose(1, 2)
        made = made.transpose(0, 1) if layout == "sbhd" else made
        return made.reshape(*made.shape[:2], -1)

    def _rows(self, query, key, value, starts, ends, mask_type):
        """Attention of each row of a pack to its own keys; places between rows become 0."""
        lengths = (edges.diff().tolist() for edges in ends)
        made = query.new_zeros(query.shape[0], query.shape[1], value.shape[2])
        places, parts = [], []
        for start_q, start_k, length_q, length_k in zip(
            *(edges.tolist() for edges in starts), *lengths, strict=False
        ):
            q = query[start_q : start_q + length_q].transpose(0, 1)[None]
            k = key[start_k : start_k + length_k].transpose(0, 1)[None]
            v = value[start_k : start_k + length_k].transpose(0, 1)[None]
            mask = None
            if "bottom_right" in mask_type:
                mask = _below(q, k, length_k - length_q)
            elif "causal" in mask_type and length_q != length_k:
                mask = _below(q, k, 0)
            parts.append(
                self._attend(q, k, v, mask, "causal" in mask_type and mask is None)[0].transpose(0, 1)
            )
            places.append(torch.arange(start_q, start_q + length_q, device=query.device))
        return made.index_copy(0, torch.cat(places), torch.cat(parts)).reshape(query.shape[0], -1)

    def _attend(self, q, k, v, mask, causal):
        dropout = self.attention_dropout if self.training else 0.0
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            dropout_p=dropout,
            is_causal=causal,
            scale=self.softmax_scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )


def _below(q, k, diagonal):
    """True where a query sees a key: on or below a diagonal."""
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(diagonal)
