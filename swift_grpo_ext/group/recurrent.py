"""Recurrent layers over a pack: each node runs once, from the state behind the node that it continues.

Gated delta nets (Qwen3.5, Qwen3-Next, OLMo-Hybrid) mix tokens by a short causal convolution, where a node has
the last columns of its path in front, and by the delta rule, whose state it takes over: all nodes of a level
in one call. A layer calls both by names of its module, or has them itself: while it goes over a pack, both
are ours.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad, silu

from swift_grpo_ext.group.attention_gpu import RepeatRows
from swift_grpo_ext.group.layout import Batches, PackLayout, PackMask
from swift_grpo_ext.hugging_face.delta_nets import CONVOLUTION, DELTA_RULE, home_of
from swift_grpo_ext.swap import swapped

_wrapped: set[type] = set()


def install(decoder: nn.Module) -> None:
    """Let packs through the recurrent layers of a language model."""
    for layer in recurrent_layers(decoder):
        if type(layer) not in _wrapped:
            _wrapped.add(type(layer))
            type(layer).forward = _opening_the_layout(type(layer).forward)


def unsupported(decoder: nn.Module) -> str:
    """Reason why the recurrent layers of a language model cannot take packs; empty if they can."""
    kinds = getattr(getattr(decoder, "config", None), "layer_types", None) or []
    for layer, kind in zip(getattr(decoder, "layers", []), kinds, strict=False):
        if kind == "linear_attention" and next(recurrent_layers(layer), None) is None:
            return f"recurrent layers of {type(layer).__name__}, not gated delta nets as we know them"
    return ""


def recurrent_layers(decoder: nn.Module) -> Iterator[nn.Module]:
    """Gated delta nets whose two mixing functions stand in their module."""
    for part in decoder.modules():
        module = sys.modules.get(type(part).__module__)
        known = hasattr(module, CONVOLUTION) and hasattr(module, DELTA_RULE)
        if known and type(part).__name__.endswith("GatedDeltaNet"):
            yield part


def _opening_the_layout(forward: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(forward)
    def packed_or_rows(
        layer: nn.Module, hidden_states: Float[Tensor, "batch tokens hidden"], *args: object, **kwargs: object
    ) -> object:
        mask = kwargs.get("attention_mask")
        if not isinstance(mask, PackMask):
            return forward(layer, hidden_states, *args, **kwargs)
        home, rule = home_of(layer)
        with going_over(mask.pack_layout, home, {CONVOLUTION: convolve, rule: delta_rule}):
            return forward(layer, hidden_states, *args, **{**kwargs, "attention_mask": None})

    return packed_or_rows


@contextmanager
def going_over(
    layout: PackLayout, home: object, packed: Mapping[str, Callable[..., object]]
) -> Iterator[None]:
    """While this is open, ``packed`` stands in for functions of ``home``; each gets these and the layout."""
    with ExitStack() as stack:
        for name, ours in packed.items():
            stack.enter_context(swapped(home, name, functools.partial(ours, getattr(home, name), layout)))
        yield


def convolve(
    usual: Callable[..., Float[Tensor, "1 channels columns"]] | None,
    layout: PackLayout,
    x: Float[Tensor, "1 channels tokens"],
    weight: Float[Tensor, "channels kernel"],
    *args: Any,
    **kwargs: Any,
) -> Float[Tensor, "1 channels tokens"]:
    """The causal convolution of a pack, in one call: each run of tokens behind the columns that it sees.

    ``usual`` is None where a layer of a transformers without kernels computes it by itself.
    """
    before = weight.shape[-1] - 1
    device = x.device
    source, kept = layout.once(("columns", before, device), lambda: _columns(layout, before, device))
    # The end of a path stands before all that continue it: `RepeatRows` adds up their gradients in fp32.
    columns = RepeatRows.apply(pad(x[0].transpose(0, 1), (0, 0, 1, 0)), source)
    out = (usual or _causal)(columns.transpose(0, 1)[None], weight, *args, **kwargs)
    return out.index_select(2, kept)


def _causal(
    x: Float[Tensor, "1 channels columns"],
    weight: Float[Tensor, "channels kernel"],
    bias: Float[Tensor, " channels"] | None,
    **_: object,
) -> Float[Tensor, "1 channels columns"]:
    out = conv1d(x, weight[:, None], bias, padding=weight.shape[-1] - 1, groups=len(weight))
    return silu(out[..., : x.shape[-1]])


def _columns(
    layout: PackLayout, before: int, device: torch.device
) -> tuple[Int[Tensor, " columns"], Int[Tensor, " tokens"]]:
    """The token in each column, counted from 1 (0: no token), and the column of each token.

    A node stands behind the last ``before`` tokens of its path, which has empty columns before it where it
    is shorter.
    """
    source = []
    own = []
    for node, path in zip(layout.nodes, layout.paths, strict=True):
        source.append(pad(path + 1, (before, 0))[-before - node.length :])
        own.append(torch.arange(before + node.length) >= before)
    return torch.cat(source).to(device), torch.cat(own).nonzero()[:, 0].to(device)


State = Float[Tensor, "runs heads key_dim value_dim"]
_SET_HERE = ("initial_state", "output_final_state", "cu_seqlens")


def _levels(
    layout: PackLayout, end_to_end: bool, device: torch.device
) -> tuple[Batches, list[Int[Tensor, " _"]], list[dict[str, Int[Tensor, " _"]]]]:
    """The nodes of each level as the delta rule takes them in one call.

    Also the places of their parents in the level before; and where they begin and end, if ``end_to_end``.
    """
    nodes = layout.nodes
    batches = Batches.of(nodes, layout.levels(), device, end_to_end)
    above = []
    lengths: list[dict[str, Int[Tensor, " _"]]] = []
    for before, level in pairwise([[-1], *batches.numbers]):
        rows = [before.index(nodes[number].parent) for number in level]
        above.append(torch.tensor(rows, dtype=torch.long, device=device))
        bounds = torch.tensor([0, *(nodes[number].length for number in level)], device=device).cumsum(0)
        lengths.append({"cu_seqlens": bounds} if end_to_end else {})
    return batches, above, lengths


def delta_rule(
    usual: Callable[..., tuple[Float[Tensor, "rows places heads value_dim"], State | None]],
    layout: PackLayout,
    query: Float[Tensor, "1 tokens heads key_dim"],
    key: Float[Tensor, "1 tokens heads key_dim"],
    value: Float[Tensor, "1 tokens heads value_dim"],
    **kwargs: Any,
) -> tuple[Float[Tensor, "1 tokens heads value_dim"], None]:
    """The gated delta rule over a pack, a call for each level: its output, and no state.

    Nodes that begin rows run first, then those below them from the states behind these. Among ``kwargs``,
    ``g`` (log of the decay) and ``beta`` are ``(1, tokens, heads)``. In padding nothing decays and nothing is
    written: the state stays.
    """
    device = query.device
    end_to_end = _takes_lengths(query)
    batches, above, lengths = layout.once(
        ("levels", end_to_end, device), lambda: _levels(layout, end_to_end, device)
    )
    mixed = [query, key, value, kwargs.pop("g"), kwargs.pop("beta")]
    parts = [batches.split(part[0], 0) for part in mixed]
    options = {name: option for name, option in kwargs.items() if name not in _SET_HERE}
    state: State | None = None
    done = []
    for level, (real, *rows) in enumerate(zip(batches.real, *parts, strict=True)):
        g, beta = (gate * real[..., None] for gate in rows[3:])
        out, state = usual(
            *rows[:3],
            g=g,
            beta=beta,
            initial_state=None if state is None else state.index_select(0, above[level]),
            output_final_state=level + 1 < len(above),
            **lengths[level],
            **options,
        )
        done.append(out)
    return batches.join(done, 0)[None], None


def _takes_lengths(tensor: Float[Tensor, "..."]) -> bool:
    """True where the model's function is flash-linear-attention's: its kernels need a GPU."""
    return tensor.is_cuda and find_spec("fla") is not None
