from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from swift_grpo_ext.group import attention_gpu
from swift_grpo_ext.group.attention import BACKENDS, _grouped_sdpa
from swift_grpo_ext.group.layout import CAUSAL, PackForm, Visibility
from tests.group.stars import star_layout, stars_of
from tests.precision import in_float64

SPANS = st.lists(
    st.tuples(st.integers(1, 9), st.lists(st.integers(0, 6), min_size=1, max_size=4)), min_size=1, max_size=3
)
HEADS, KV_HEADS, DIM = 4, 2, 8


VISIBILITIES = [
    Visibility(window=3),
    Visibility(window=1),
    Visibility(blocks=True),
    Visibility(window=4, blocks=True),
]


def layout_of(sizes, backend):
    return star_layout(sizes, PackForm(backend))


def tensors(length, kv_heads=KV_HEADS, dtype=torch.float64):
    torch.manual_seed(length)
    shapes = [(1, heads, length, DIM) for heads in (HEADS, kv_heads, kv_heads)]
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def with_blocks(layout):
    """The layout with tokens 1 to 2 of each run of three or more being an image, and 4 to 6 of longer ones."""
    blocks = torch.zeros(layout.length, dtype=torch.long)
    for number, node in enumerate(layout.nodes):
        for image, (first, last) in enumerate(((1, 3), (4, 7)), start=1):
            if last <= node.length:
                blocks[node.start + first : node.start + last] = 2 * number + image
    return replace(layout, blocks=blocks, form=PackForm(layout.form.backend, image_blocks="all"))


def mask_of_row(layout, index, visibility):
    """What the tokens of one row see, from the definition: the row alone, without any pack."""
    at = torch.arange(len(index))
    mask = at[:, None] >= at
    if visibility.blocks:
        numbers = layout.blocks[index]
        mask = mask | ((numbers[:, None] == numbers) & (numbers > 0))
    return mask & (at[:, None] - at < visibility.window) if visibility.window else mask


def row_by_row(query, key, value, layout, visibility=CAUSAL):
    """Each completion behind its own copy of the prompt: what the stock path computes."""
    times = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    out = torch.zeros_like(query)
    for span in stars_of(layout):
        prompt = list(range(span.start, span.start + span.prompt))
        at = span.start + span.prompt
        for tail in (0, *span.completions):
            index = torch.tensor(prompt + list(range(at, at + tail)))
            rows = [tensor[:, :, index] for tensor in (query, key, value)]
            own = torch.tensor(prompt if not tail else list(range(at, at + tail)))
            if len(own):
                mask = mask_of_row(layout, index, visibility)
                result = scaled_dot_product_attention(*rows, attn_mask=mask)[:, :, -len(own) :]
                out = out.index_copy(2, own, result)
            at += tail
    return out


def reference_varlen(q, k, v, starts_q, starts_k, longest_q, longest_k, scale, window=None):
    """What the flash kernel computes: causal per sequence, aligned to the last key."""
    assert (longest_q, longest_k) == (int(starts_q.diff().max()), int(starts_k.diff().max()))
    times = q.shape[1] // k.shape[1]
    parts = []
    for a, b, c, d in zip(starts_q[:-1], starts_q[1:], starts_k[:-1], starts_k[1:], strict=True):
        one, two, three = q[a:b], k[c:d].repeat_interleave(times, 1), v[c:d].repeat_interleave(times, 1)
        mask = torch.ones(b - a, d - c, dtype=torch.bool).tril((d - c) - (b - a))
        if window is not None:
            mask = mask.triu((d - c) - (b - a) - window + 1)
        rows = [part.transpose(0, 1)[None] for part in (one, two, three)]
        parts.append(scaled_dot_product_attention(*rows, attn_mask=mask, scale=scale)[0].transpose(0, 1))
    return torch.cat(parts)


@pytest.fixture(autouse=True)
def _varlen_on_cpu(monkeypatch):
    monkeypatch.setattr(attention_gpu, "varlen_kernel", lambda: reference_varlen)


def output_and_gradients(attend, inputs):
    with in_float64():  # RepeatRows sums in single precision
        out = attend(*inputs)
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
        return [out, *torch.autograd.grad((out * weight).sum(), inputs)]


def equal(backend, layout, visibility, reference, kv_heads=KV_HEADS):
    """A way of attention has output and gradients of the reference."""
    inputs = tensors(layout.length, kv_heads)
    expected = output_and_gradients(lambda *qkv: reference(*qkv, layout, visibility), inputs)
    ours = output_and_gradients(lambda *qkv: BACKENDS[backend](*qkv, layout, None, visibility), inputs)
    for one, two in zip(expected, ours, strict=True):
        torch.testing.assert_close(two, one, atol=1e-10, rtol=1e-10)


def ways(visibilities):
    """Each way of attention with each of these; the interface takes another one than varlen for blocks."""
    pairs = product(sorted(BACKENDS), visibilities)
    return [pair for pair in pairs if not (pair[0] == "varlen" and pair[1].blocks)]


@pytest.mark.parametrize("backend", sorted(BACKENDS))
@given(sizes=SPANS, kv_heads=st.sampled_from([1, 2, 4]))
@settings(max_examples=15)
def test_equals_the_rows_one_by_one(backend, sizes, kv_heads):
    equal(backend, layout_of(sizes, backend), CAUSAL, row_by_row, kv_heads)


@pytest.mark.parametrize(("backend", "visibility"), ways(VISIBILITIES), ids=str)
@given(sizes=SPANS)
@settings(max_examples=8)
def test_windows_and_images_are_those_of_the_row(backend, visibility, sizes):
    equal(backend, with_blocks(layout_of(sizes, backend)), visibility, row_by_row)


def test_a_causal_bias_is_taken_for_a_mask():
    """On a GPU in 16 bits it takes the place of a mask in memory."""
    query, key, value = (tensor.detach() for tensor in tensors(5))
    query = query[:, :, 2:]
    mask = torch.ones(3, 5, dtype=torch.bool).tril(2)
    found, expected = (
        _grouped_sdpa(query, key, value, None, one) for one in (causal_lower_right(3, 5), mask)
    )
    torch.testing.assert_close(found, expected)


def test_a_window_that_nobody_leaves_is_none():
    layout = with_blocks(layout_of([(5, [3, 4])], "sdpa"))
    assert layout.visibility(9) == Visibility(blocks=True)
    assert layout.visibility(8) == Visibility(window=8, blocks=True)
    only = replace(layout, form=PackForm("sdpa", image_blocks="windows"))
    assert only.visibility(None) == CAUSAL
    assert only.visibility(100) == Visibility(blocks=True)


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_the_scale_is_passed_on(backend):
    layout = layout_of([(5, [3, 4])], backend)
    query, key, value = (tensor.detach() for tensor in tensors(layout.length))
    half = BACKENDS[backend](query, key, value, layout, DIM**-0.5 / 2, CAUSAL)
    halved = BACKENDS[backend](query / 2, key, value, layout, None, CAUSAL)
    torch.testing.assert_close(half, halved, atol=1e-10, rtol=1e-10)


def test_the_gradient_of_a_shared_prompt_is_summed_in_fp32():
    rows = torch.zeros(1, 1, dtype=torch.bfloat16, requires_grad=True)
    repeated = attention_gpu.RepeatRows.apply(rows, torch.zeros(257, dtype=torch.long))
    repeated.sum().backward()
    assert rows.grad.item() == 256  # 257 rounded to bf16; added one by one in bf16 it would stop at 256 too
    weights = torch.full((512, 1), 1.0, dtype=torch.bfloat16)
    rows.grad = None
    (attention_gpu.RepeatRows.apply(rows, torch.zeros(512, dtype=torch.long)) * weights).sum().backward()
    assert rows.grad.item() == 512
