"""Recurrent layers over a pack: a prompt runs once, its completions run from its state.

Gated delta nets (Qwen3.5, Qwen3-Next, OLMo-Hybrid) mix tokens by a short causal convolution, where a row has
the prompt's last columns in front, and by the delta rule, whose state it takes over. transformers' layers
call both by names in their module: wrapped once per process, a call without a layout goes on to the original.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from swift_grpo_ext.group.layout import PackLayout, PackMask, Span

CONVOLUTION, DELTA_RULE = "causal_conv1d_fn", "torch_chunk_gated_delta_rule"
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
        layer: object, hidden_states: Float[Tensor, "batch tokens hidden"], *args: object, **kwargs: object
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
    usual: Callable[..., Float[Tensor, "rows channels places"]],
    layout: PackLayout,
    whole: Float[Tensor, "1 channels tokens"],
    weight: Float[Tensor, "channels kernel"],
    *args: Any,
    **kwargs: Any,
) -> Float[Tensor, "1 channels tokens"]:
    """The causal convolution of a pack."""
    before = weight.shape[-1] - 1
    done = []
    for span in layout.spans:
        prompt = whole[:, :, span.start : span.start + span.prompt]
        done.append(usual(prompt, weight, *args, **kwargs))
        if not sum(span.completions):
            continue
        completions = whole[:, :, span.start + span.prompt : span.stop]
        rows = layout.to_rows(completions, span, 2)[0].transpose(0, 1)
        # Shorter prompts have the zeros that stand before every row.
        front = torch.nn.functional.pad(prompt, (before, 0))[:, :, span.prompt :]
        rows = torch.cat([front.expand(len(rows), -1, -1), rows], 2)
        out = usual(rows, weight, *args, **kwargs)[:, :, before:]
        done.append(layout.to_pack(out.transpose(0, 1)[None], span, 2))
    return torch.cat(done, 2)


State = Float[Tensor, "rows heads key_dim value_dim"]
Run = tuple[Float[Tensor, "rows places heads value_dim"], State | None]  # output and state
_SET_HERE = ("initial_state", "output_final_state", "cu_seqlens")


def delta_rule(
    usual: Callable[..., Run],
    layout: PackLayout,
    query: Float[Tensor, "1 tokens heads key_dim"],
    key: Float[Tensor, "1 tokens heads key_dim"],
    value: Float[Tensor, "1 tokens heads value_dim"],
    **kwargs: Any,
) -> tuple[Float[Tensor, "1 tokens heads value_dim"], None]:
    """The gated delta rule over a pack: its output, and no state.

    Among ``kwargs``, ``g`` (log of the decay) and ``beta`` are ``(1, tokens, heads)``.
    """
    mixed = [query, key, value, kwargs.pop("g"), kwargs.pop("beta")]
    options = {name: given for name, given in kwargs.items() if name not in _SET_HERE}

    def run(
        parts: list[Float[Tensor, "rows places heads ..."]], state: State | None, **further: object
    ) -> Run:
        g, beta = parts[3:]
        return usual(*parts[:3], g=g, beta=beta, initial_state=state, **options, **further)

    done = []
    for span in layout.spans:
        end = span.start + span.prompt
        out, state = run([part[:, span.start : end] for part in mixed], None, output_final_state=True)
        done.append(out)
        if not sum(span.completions):
            continue
        assert state is not None
        own = [part[:, end : span.stop] for part in mixed]
        if _takes_lengths(query):
            done.append(_completions_without_padding(run, own, span, state))
        else:  # padded rows; what stands behind a completion changes nothing before it
            rows = [layout.to_rows(part, span, 1)[0] for part in own]
            spread = state.expand(len(span.completions), -1, -1, -1)
            out, _ = run(rows, spread, output_final_state=False)
            done.append(layout.to_pack(out[None], span, 1))
    return torch.cat(done, 1), None


def _completions_without_padding(
    run: Callable[..., Run], own: list[Float[Tensor, "rows places heads ..."]], span: Span, state: State
) -> Float[Tensor, "1 places heads value_dim"]:
    """A group's completions one after another, as flash-linear-attention takes them: ``cu_seqlens``."""
    lengths = torch.tensor([length for length in span.completions if length])
    starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(state.device)
    spread = state.expand(len(lengths), -1, -1, -1).contiguous()
    out, _ = run(own, spread, output_final_state=False, cu_seqlens=starts)
    return torch.as_tensor(out)


def _takes_lengths(tensor: Float[Tensor, "..."]) -> bool:
    """True where the model's function is flash-linear-attention's: its kernels need a GPU."""
    return tensor.is_cuda and find_spec("fla") is not None
