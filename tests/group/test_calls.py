"""What a packed pass calls: kernels of recurrent layers once for all groups, nothing in a layer that waits for a GPU."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from torch.overrides import TorchFunctionMode
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

from swift_grpo_ext.group import interface, recurrent
from swift_grpo_ext.group.forward import packed_scores
from swift_grpo_ext.group.micro_batch import pack_inputs
from swift_grpo_ext.group.shared_prefix import build_pack, read_rows
from tests.group.batches import collate
from tests.group.stars import stars_of
from tests.group.test_attention import layout_of
from tests.group.test_decoders import ROWS, VOCAB, build
from tests.precision import DOUBLE, in_float64

# A device's queue is emptied by reading a value, and by making a tensor of values there.
WAITING = {
    "item",
    "tolist",
    "cpu",
    "numpy",
    "nonzero",
    "__bool__",
    "__int__",
    "__float__",
    "tensor",
    "as_tensor",
}
GROUPS = [(5, [3, 0, 4]), (2, [1]), (9, [0]), (70, [66, 2])]
HEADS, DIM = 2, 4


class Waits(TorchFunctionMode):
    """Counts what makes the host wait."""

    names = WAITING

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in self.names:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def counting(usual, calls):
    def call(*args, **kwargs):
        calls.append(args[0].shape)
        return usual(*args, **kwargs)

    return call


def test_recurrent_layers_take_all_prompts_in_one_call_and_all_completions_in_another():
    layout = layout_of(GROUPS, "sdpa")
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, layout.length, HEADS, DIM) for _ in range(3))
    gates = {"g": -torch.rand(1, layout.length, HEADS), "beta": torch.rand(1, layout.length, HEADS)}
    calls = []
    recurrent.delta_rule(counting(torch_chunk_gated_delta_rule, calls), layout, query, key, value, **gates)
    assert calls == [(4, 70, HEADS, DIM), (5, 66, HEADS, DIM)]


def by_lengths(query, key, value, *, g, beta, initial_state, output_final_state, cu_seqlens):
    """What flash-linear-attention's function does with ``cu_seqlens``: each sequence from its own state."""
    runs = []
    for number, (start, stop) in enumerate(pairwise(cu_seqlens.tolist())):
        query_, key_, value_, g_, beta_ = (part[:, start:stop] for part in (query, key, value, g, beta))
        state = None if initial_state is None else initial_state[number : number + 1]
        further = {"initial_state": state, "output_final_state": output_final_state}
        runs.append(torch_chunk_gated_delta_rule(query_, key_, value_, g=g_, beta=beta_, **further))
    outputs, states = zip(*runs, strict=True)
    return torch.cat(outputs, 1), torch.cat(states) if output_final_state else None


def test_the_way_without_padding_is_the_way_with_it(monkeypatch):
    layout = layout_of(GROUPS, "sdpa")
    torch.manual_seed(0)
    with in_float64():
        query, key, value = (torch.randn(1, layout.length, HEADS, DIM) for _ in range(3))
        gates = {"g": -torch.rand(1, layout.length, HEADS), "beta": torch.rand(1, layout.length, HEADS)}
        padded, _ = recurrent.delta_rule(torch_chunk_gated_delta_rule, layout, query, key, value, **gates)
        monkeypatch.setattr(recurrent, "_takes_lengths", lambda tensor: True)
        calls = []
        ours, _ = recurrent.delta_rule(counting(by_lengths, calls), layout, query, key, value, **gates)
    torch.testing.assert_close(ours, padded, atol=DOUBLE, rtol=0)
    assert calls == [(1, 5 + 2 + 9 + 70, HEADS, DIM), (1, 3 + 4 + 1 + 66 + 2, HEADS, DIM)]


def test_recurrent_layers_have_one_convolution():
    layout = layout_of(GROUPS, "sdpa")
    weight, calls = torch.randn(6, 4), []

    def causal(columns, weight):
        padded = torch.nn.functional.pad(columns, (weight.shape[-1] - 1, 0))
        return torch.nn.functional.conv1d(padded, weight[:, None], groups=len(weight))

    whole = torch.randn(1, 6, layout.length)
    out = recurrent.convolve(counting(causal, calls), layout, whole, weight)
    assert len(calls) == 1
    for span in stars_of(layout):  # each row by itself
        prompt = whole[:, :, span.start : span.start + span.prompt]
        at = span.start + span.prompt
        torch.testing.assert_close(out[:, :, span.start : at], causal(prompt, weight))
        for length in span.completions:
            row = torch.cat([prompt, whole[:, :, at : at + length]], 2)
            torch.testing.assert_close(out[:, :, at : at + length], causal(row, weight)[:, :, span.prompt :])
            at += length


@pytest.mark.parametrize(
    "name", ["gemma3", "llama", "mistral with a window", "olmo_hybrid", "qwen3_5", "qwen3_moe"]
)
def test_no_layer_waits_for_what_is_known_of_the_pack(name):
    model = build(name)
    inputs = collate(ROWS)
    mask = inputs.pop("completion_mask")
    rows = read_rows(inputs["input_ids"], inputs["attention_mask"], mask)
    form = interface.pack_form(model.config, "sdpa")
    pack = build_pack(rows, inputs["input_ids"], mask, form)
    packed = pack_inputs(inputs, pack, {})
    packed_scores(model, model.lm_head, packed, pack, vocab_size=VOCAB)
    with Waits() as second:  # all layers of it find what the first one made
        packed_scores(model, model.lm_head, packed, pack, vocab_size=VOCAB)
    with Waits() as stock:
        model(**inputs, use_cache=False)
    assert second.counts <= stock.counts


# What moves tensors between devices or makes those that say where tokens lie: once for a pack, not in each layer.
MAKING = {"to", "arange", "nonzero", "cumsum", "argsort", "repeat_interleave", "tensor", "item", "tolist"}


class Makes(Waits):
    """Counts what could be made once for a pack."""

    names = MAKING


def makes_in_first_pass(name, layers, backend):
    """Of a pack that no layer has seen yet, and of the same rows through the model as it is."""
    model = build(name, {"num_hidden_layers": layers, **kinds(name, layers)})
    inputs = collate(ROWS)
    mask = inputs.pop("completion_mask")
    rows = read_rows(inputs["input_ids"], inputs["attention_mask"], mask)
    pack = build_pack(rows, inputs["input_ids"], mask, interface.pack_form(model.config, backend))
    packed = pack_inputs(inputs, pack, {})
    with torch.no_grad(), Makes() as ours:
        packed_scores(model, model.lm_head, packed, pack, vocab_size=VOCAB)
    with torch.no_grad(), Makes() as stock:
        model(**inputs, use_cache=False)
    return ours.counts, stock.counts


def kinds(name, layers):
    """Every second layer of a hybrid model attends."""
    if name not in ("qwen3_5", "olmo_hybrid"):
        return {}
    return {"layer_types": (["linear_attention", "full_attention"] * layers)[:layers]}


@pytest.mark.parametrize(
    ("name", "backend"),
    [("llama", "sdpa"), ("llama", "dense"), ("qwen3_5", "sdpa")],
)
def test_a_deeper_model_makes_no_more_than_its_own_layers_do(name, backend):
    (two, stock_two), (four, stock_four) = (makes_in_first_pass(name, layers, backend) for layers in (2, 4))
    own = stock_four - stock_two
    if kinds(name, 2):  # a recurrent layer is called twice, for the prompts and for the completions
        own += makes_in_first_pass(name, 3, backend)[1] - stock_two
    assert four - two <= own
    assert two.total() > 0
