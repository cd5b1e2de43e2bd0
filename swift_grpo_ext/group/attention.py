"""Attention over a pack: a token sees the nodes above its own and its own past, and nothing else.

All functions of `BACKENDS` compute the same thing, in layers that see everything before, with a sliding
window, and where the tokens of an image see each other (`Visibility`):

    dense   SDPA with a (T, T) mask: the reference of tests and of Megatron's check of its one call
    sdpa    SDPA family by family: a prompt, then its completions as a batch over its keys and their own
    varlen  one call of a variable-length flash kernel; for GPUs
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from swift_grpo_ext.group.attention_gpu import varlen
from swift_grpo_ext.group.layout import (
    CAUSAL,
    Batches,
    PackLayout,
    Visibility,
    family_mask,
    visible,
)

Attend = Callable[..., Float[Tensor, "1 heads tokens value_dim"]]  # of the arguments of `dense`


def dense(
    query: Float[Tensor, "1 heads tokens dim"],
    key: Float[Tensor, "1 kv_heads tokens dim"],
    value: Float[Tensor, "1 kv_heads tokens value_dim"],
    layout: PackLayout,
    scale: float | None,
    visibility: Visibility,
) -> Float[Tensor, "1 heads tokens value_dim"]:
    """SDPA with the whole ``(T, T)`` mask."""
    mask = layout.once(
        ("dense", visibility, query.device), lambda: visible(layout, visibility).to(query.device)
    )
    return _grouped_sdpa(query, key, value, scale, mask)


def sdpa(
    query: Float[Tensor, "1 heads tokens dim"],
    key: Float[Tensor, "1 kv_heads tokens dim"],
    value: Float[Tensor, "1 kv_heads tokens value_dim"],
    layout: PackLayout,
    scale: float | None,
    visibility: Visibility,
) -> Float[Tensor, "1 heads tokens value_dim"]:
    """SDPA of the nodes under each path, as a batch over the path's keys (copied) and their own ones."""
    device = query.device
    batches = layout.once(("families", device), lambda: Batches.of(layout.nodes, layout.families(), device))
    queries, keys, values = (batches.split(tensor, 2) for tensor in (query, key, value))
    continued = {node.parent for node in layout.nodes}
    reach = layout.length if visibility.window is None else visibility.window - 1
    # Keys and values from the first node down to each that is continued, as far as those below it see them.
    nothing = [tensor.detach()[:, :, :0] for tensor in (key, value)]
    paths: dict[int, list[Float[Tensor, "1 kv_heads _ _"]]] = {-1: nothing}
    done = []
    for family, *own in zip(batches.numbers, queries, keys, values, strict=True):
        above = paths[layout.nodes[family[0]].parent]
        done.append(_attend_family(own, above, family, layout, scale, visibility))
        for row, number in enumerate(family):
            if number in continued:
                begin = row * own[0].shape[3]
                stop = begin + layout.nodes[number].length
                ends = [part.flatten(2, 3)[:, :, begin:stop] for part in own[1:]]
                paths[number] = [_path(*pair, reach) for pair in zip(above, ends, strict=True)]
    return batches.join(done, 2)


def _path(
    above: Float[Tensor, "1 kv_heads above dim"], own: Float[Tensor, "1 kv_heads length dim"], reach: int
) -> Float[Tensor, "1 kv_heads path dim"]:
    """Keys, or values, of a node behind those above it: the last ones that a token below it sees."""
    path = torch.cat([above, own], 2)
    return path[:, :, max(0, path.shape[2] - reach) :]


def _attend_family(
    own: Sequence[Float[Tensor, "1 _ rows length _"]],
    above: Sequence[Float[Tensor, "1 kv_heads above _"]],
    family: list[int],
    layout: PackLayout,
    scale: float | None,
    visibility: Visibility,
) -> Float[Tensor, "1 heads rows length value_dim"]:
    """Attention of one family: ``own`` queries, keys and values of its nodes, keys and values ``above``."""
    query, *keys_values = (part[0].transpose(0, 1) for part in own)
    keys, values = (
        torch.cat([path.expand(len(mine), -1, -1, -1), mine], 2)
        for path, mine in zip(above, keys_values, strict=True)
    )
    seen = above[0].shape[2]
    mask: Shaped[Tensor, "*_ queries keys"] | None = None
    if visibility == CAUSAL and seen and query.is_cuda and query.dtype != torch.float32:
        from torch.nn.attention.bias import causal_lower_right

        # reaches the flash kernel without a mask in memory
        mask = causal_lower_right(query.shape[2], keys.shape[2])
    elif visibility != CAUSAL or seen:
        mask = family_mask(layout, family, seen, visibility, query.device)
    return _grouped_sdpa(query, keys, values, scale, mask).transpose(0, 1)[None]


def _grouped_sdpa(
    query: Float[Tensor, "rows heads queries dim"],
    key: Float[Tensor, "rows kv_heads keys dim"],
    value: Float[Tensor, "rows kv_heads keys value_dim"],
    scale: float | None,
    mask: Shaped[Tensor, "..."] | None,
) -> Float[Tensor, "rows heads queries value_dim"]:
    """SDPA, causal without a mask, with grouped key/value heads on whichever kernel takes them.

    ``mask`` is ``(..., queries, keys)`` of bool, or torch's ``CausalBias``, which has no such shape.
    """
    grouped = query.shape[1] != key.shape[1]
    if grouped and query.is_cuda and (type(mask) is Tensor or query.dtype == torch.float32):
        # With a mask in memory, or in fp32, only the slow math kernel takes grouped heads on a GPU.
        times = query.shape[1] // key.shape[1]
        key = key.repeat_interleave(times, 1)
        value = value.repeat_interleave(times, 1)
        grouped = False
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
    )


BACKENDS: dict[str, Attend] = {"dense": dense, "sdpa": sdpa, "varlen": varlen}
