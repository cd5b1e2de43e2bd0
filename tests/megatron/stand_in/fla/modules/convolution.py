"""Stands in for the short causal convolution over positions, each channel for itself."""

import torch
import torch.nn.functional as F


def causal_conv1d(
    x,
    weight=None,
    bias=None,
    residual=None,
    initial_state=None,
    output_final_state=False,
    activation=None,
    cu_seqlens=None,
    **unused,
):
    """Convolve each row of a pack, or of a batch, with what was before it.

    Args:
        x: ``(batch, position, channel)``; with ``cu_seqlens`` the batch is 1.
        weight: ``(channel, width)``.
        bias: ``(channel)``.
        residual: Not supported.
        initial_state: ``(row, channel, width)``: the last positions before each row.
        output_final_state: Also return the state after each row.
        activation: None, "silu" or "swish".
        cu_seqlens: Edges of the rows.
    """
    if residual is not None or activation not in (None, "silu", "swish"):
        raise NotImplementedError(f"residual, activation {activation}")
    rows = x.split(1) if cu_seqlens is None else x.split(cu_seqlens.diff().tolist(), dim=1)
    width = weight.shape[-1]
    made, states = [], []
    for number, row in enumerate(rows):
        row = row.transpose(1, 2)
        before = row.new_zeros(1, row.shape[1], width)
        before = before if initial_state is None else initial_state[number : number + 1]
        whole = torch.cat([before.to(row.dtype), row], dim=-1)
        states.append(whole[..., -width:])
        out = F.conv1d(whole[..., 1:], weight[:, None], bias, groups=weight.shape[0])
        made.append((F.silu(out) if activation else out).transpose(1, 2))
    out = torch.cat(made, dim=0 if cu_seqlens is None else 1)
    return out, torch.cat(states) if output_final_state else None
