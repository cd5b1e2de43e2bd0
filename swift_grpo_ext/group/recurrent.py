"""Recurrent layers over a pack: each node runs once, from the state behind the node that it continues.

Gated delta nets (Qwen3.5, Qwen3-Next, OLMo-Hybrid) mix tokens by a short causal convolution, where a node has
the last columns of its path in front, and by the delta rule, whose state it takes over: all nodes of a level
in one call. transformers' layers call both by names in their module: wrapped once per process, a call without
a layout goes on to the original.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from swift_grpo_ext.group.attention_gpu import RepeatRows
from swift_grpo_ext.group.layout import PackLayout, PackMask

CONVOLUTION = "causal_conv1d_fn"
DELTA_RULE = "torch_chunk_gated_delta_rule"
_layout: ContextVar[PackLayout | None] = ContextVar("layout", default=None)
_wrapped: set[object] = set()


def install(decoder: nn.Module) -> None:
    """Let packs through the recurrent layers of a language model."""
    for layer in recurrent_layers(decoder):
        if type(layer) not in _wrapped:
            _wrapped.add(type(layer))
            type(layer).forward = _opening_the_layout(type(layer).forward)
        module = sys.modules[type(layer).__module__]
        if module not in _wrapped:
            _wrapped.add(module)
            setattr(module, CONVOLUTION, by_layout(getattr(module, CONVOLUTION), convolve))
            setattr(module, DELTA_RULE, by_layout(getattr(module, DELTA_RULE), delta_rule))


def unsupported(decoder: nn.Module) -> str:
    """Why the recurrent layers of a language model cannot take packs; empty if they can."""
    kinds = getattr(getattr(decoder, "config", None), "layer_types", None) or []
    known = {id(layer) for layer in recurrent_layers(decoder)}
    for layer, kind in zip(getattr(decoder, "layers", []), kinds, strict=False):
        if kind == "linear_attention" and not any(id(part) in known for part in layer.modules()):
            return f"recurrent layers of {type(layer).__name__}, which are no gated delta nets that we know"
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
        with within(mask.pack_layout):
            return forward(layer, hidden_states, *args, **{**kwargs, "attention_mask": None})

    return packed_or_rows


@contextmanager
def within(layout: PackLayout) -> Iterator[None]:
    """While this is open, a recurrent layer goes over a pack of this layout."""
    token = _layout.set(layout)
    try:
        yield
    finally:
        _layout.reset(token)


def by_layout(usual: Callable[..., object], packed: Callable[..., object]) -> Callable[..., object]:
    """The usual function; within a layout ``packed`` instead, which is given the usual one and the layout."""

    @functools.wraps(usual)
    def packed_or_usual(*args: object, **kwargs: object) -> object:
        layout = _layout.get()
        return usual(*args, **kwargs) if layout is None else packed(usual, layout, *args, **kwargs)

    return packed_or_usual


def convolve(
    usual: Callable[..., Float[Tensor, "1 channels columns"]],
    layout: PackLayout,
    whole: Float[Tensor, "1 channels tokens"],
    weight: Float[Tensor, "channels kernel"],
    *args: Any,
    **kwargs: Any,
) -> Float[Tensor, "1 channels tokens"]:
    """The causal convolution of a pack, in one call: each run of tokens behind the columns that it sees."""
    before = weight.shape[-1] - 1
    device = whole.device
    source, kept = layout.once(("columns", before, device), lambda: _columns(layout, before, device))
    # The end of a path stands before all that continue it: `RepeatRows` adds up their gradients in fp32.
    columns = RepeatRows.apply(pad(whole[0].transpose(0, 1), (0, 0, 1, 0)), source)
    out = usual(columns.transpose(0, 1)[None], weight, *args, **kwargs)
    return out.index_select(2, kept)


def _columns(
    layout: PackLayout, before: int, device: torch.device
) -> tuple[Int[Tensor, " columns"], Int[Tensor, " tokens"]]:
    """The token in each column, from 1, where 0 is none; and the column of each token.

    A node stands behind the last ``before`` tokens of its path, which has empty columns before it where it
    is shorter.
    """
    source = []
    kept = []
    column = 0
    for node in layout.nodes:
        above = layout.tokens_of_path(node.parent) + 1
        front = pad(above, (before, 0))[len(above) :]
        source += [front, torch.arange(node.start, node.stop) + 1]
        kept.append(torch.arange(node.length) + column + before)
        column += before + node.length
    return torch.cat(source).to(device), torch.cat(kept).to(device)


State = Float[Tensor, "runs heads key_dim value_dim"]
Run = tuple[Float[Tensor, "rows places heads value_dim"], State | None]  # output and state
_SET_HERE = ("initial_state", "output_final_state", "cu_seqlens")


@dataclass(frozen=True)
class Runs:
    """The nodes of a level as the delta rule takes them: all in one call."""

    above: Int[Tensor, " runs"]  # place of each one's parent among the runs of the level before
    tokens: Int[Tensor, " own"]  # their tokens' places in the pack, one run after another
    starts: Int[Tensor, " bounds"]  # where each run begins among these, and where the last one ends
    padded: Int[Tensor, " padded"]  # for each place of rows of one length, row by row, a place in the pack
    real: Bool[Tensor, "runs longest"]  # whether that is a token of the run, and no padding
    unpadded: Int[Tensor, " own"]  # places of the tokens among ``padded``

    @classmethod
    def of(cls, layout: PackLayout, level: int, device: torch.device) -> "Runs":
        """The nodes with so many others above them."""
        before = [number for number, node in enumerate(layout.nodes) if node.level == level - 1]
        nodes = [node for node in layout.nodes if node.level == level]
        above = torch.tensor([before.index(node.parent) for node in nodes] if level else [0] * len(nodes))
        begin = torch.tensor([node.start for node in nodes])
        length = torch.tensor([node.length for node in nodes])
        columns = torch.arange(max(length.tolist()))
        real = columns < length[:, None]
        padded = begin[:, None] + columns * real  # padding repeats a run's first token
        unpadded = real.flatten().nonzero()[:, 0]
        indices = (above, padded[real], pad(length.cumsum(0), (1, 0)), padded.flatten(), real, unpadded)
        return cls(*(index.to(device) for index in indices))


def delta_rule(
    usual: Callable[..., Run],
    layout: PackLayout,
    query: Float[Tensor, "1 tokens heads key_dim"],
    key: Float[Tensor, "1 tokens heads key_dim"],
    value: Float[Tensor, "1 tokens heads value_dim"],
    **kwargs: Any,
) -> tuple[Float[Tensor, "1 tokens heads value_dim"], None]:
    """The gated delta rule over a pack, a call for each level: its output, and no state.

    All prompts run first, then all completions from the states behind their prompts. Among ``kwargs``, ``g``
    (log of the decay) and ``beta`` are ``(1, tokens, heads)``.
    """
    device = query.device
    levels, order = layout.once(("levels", device), lambda: _levels(layout, device))
    mixed = [query, key, value, kwargs.pop("g"), kwargs.pop("beta")]
    options = {name: given for name, given in kwargs.items() if name not in _SET_HERE}
    call = _without_padding if _takes_lengths(query) else _padded
    rule = functools.partial(usual, **options)
    state: State | None = None
    done = []
    for level, runs in enumerate(levels):
        state = None if state is None else state.index_select(0, runs.above)
        out, state = call(rule, mixed, runs, state, level + 1 < len(levels))
        done.append(out)
    return torch.cat(done, 1).index_select(1, order), None


def _levels(layout: PackLayout, device: torch.device) -> tuple[list[Runs], Int[Tensor, " tokens"]]:
    """The levels from the top, and the way from one behind the other to the order of the pack."""
    levels = [Runs.of(layout, at, device) for at in range(1 + max(node.level for node in layout.nodes))]
    return levels, torch.cat([runs.tokens for runs in levels]).argsort()


def _padded(
    usual: Callable[..., Run],
    mixed: list[Float[Tensor, "rows places heads ..."]],
    runs: Runs,
    state: State | None,
    hand_on: bool,
) -> tuple[Float[Tensor, "1 own heads value_dim"], State | None]:
    """As rows of one length. In the padding nothing decays and nothing is written: the state stays."""
    rows = [part[0].index_select(0, runs.padded).unflatten(0, runs.real.shape) for part in mixed]
    query, key, value, *gates = rows
    g, beta = (gate * runs.real[..., None] for gate in gates)
    out, last = usual(query, key, value, g=g, beta=beta, initial_state=state, output_final_state=hand_on)
    return out.flatten(0, 1).index_select(0, runs.unpadded)[None], last


def _without_padding(
    usual: Callable[..., Run],
    mixed: list[Float[Tensor, "rows places heads ..."]],
    runs: Runs,
    state: State | None,
    hand_on: bool,
) -> tuple[Float[Tensor, "1 own heads value_dim"], State | None]:
    """One run after another, as flash-linear-attention takes them."""
    query, key, value, g, beta = (part.index_select(1, runs.tokens) for part in mixed)
    further = {"initial_state": state, "output_final_state": hand_on, "cu_seqlens": runs.starts}
    return usual(query, key, value, g=g, beta=beta, **further)


def _takes_lengths(tensor: Float[Tensor, "..."]) -> bool:
    """True where the model's function is flash-linear-attention's: its kernels need a GPU."""
    return tensor.is_cuda and find_spec("fla") is not None
