"""Stands in for the gated delta rule: transformers' own function in PyTorch, row by row, in double precision."""

import torch
from double import in_double


def chunk_gated_delta_rule(
    q,
    k,
    v,
    g=None,
    beta=None,
    scale=None,
    initial_state=None,
    output_final_state=False,
    use_qk_l2norm_in_kernel=False,
    cu_seqlens=None,
    **unused,
):
    """Run the recurrence over each row of a pack, or of a batch; state is ``(row, head, key, value)``."""
    from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule

    rule = in_double(torch_chunk_gated_delta_rule)
    if scale is not None:
        raise NotImplementedError("scale")
    if cu_seqlens is None:
        lengths, axis = [1] * len(q), 0
    else:
        lengths, axis = cu_seqlens.diff().tolist(), 1
    columns = [tensor.split(lengths, dim=axis) for tensor in (q, k, v, g, beta)]
    made, states = [], []
    for number, (row_q, row_k, row_v, row_g, row_beta) in enumerate(zip(*columns, strict=True)):
        out, state = rule(
            row_q,
            row_k,
            row_v,
            g=row_g,
            beta=row_beta,
            initial_state=None if initial_state is None else initial_state[number : number + 1],
            output_final_state=output_final_state,
            use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        )
        made.append(out)
        states.append(state)
    return torch.cat(made, dim=axis), torch.cat(states) if output_final_state else None
