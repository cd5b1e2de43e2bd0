"""What only a GPU runs, forward and backward: each way of attention over packs, and the gated delta rule.

make test-gpu
"""

from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from swift_grpo_ext.group import recurrent
from swift_grpo_ext.group.attention import BACKENDS, dense
from swift_grpo_ext.group.layout import CAUSAL, PackForm, Visibility
from tests.group.stars import star_layout
from tests.group.test_interpreted import PACKS

pytestmark = [
    pytest.mark.lane,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
HEADS, KV_HEADS, DIM = 4, 2, 64
SIZES = {
    "one prompt": [(300, [128, 40, 0, 7])],
    "several prompts": [(300, [128, 40]), (65, [1, 200, 3]), (1, [2])],
}
VISIBILITIES = {
    "causal": CAUSAL,
    "window": Visibility(window=50),
    "images": Visibility(blocks=True),
    "both": Visibility(window=90, blocks=True),
}
# Of the norm: two roundings of 16 bits; in single precision the order of the sums.
NEAR = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 2e-6}
KINDS = [
    pytest.param(backend, visibility, dtype, id=f"{backend}-{visibility}-{str(dtype).removeprefix('torch.')}")
    for backend in sorted(BACKENDS)
    for visibility in VISIBILITIES
    for dtype in NEAR
    if not (backend == "varlen" and (VISIBILITIES[visibility].blocks or dtype == torch.float32))
]


def on_gpu(*shapes):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64).cuda() for shape in shapes]


def output_and_gradients(attend, tensors, dtype):
    parts = [tensor.detach().to(dtype, copy=True).requires_grad_() for tensor in tensors]
    out = attend(*parts)
    weight = torch.linspace(-1, 1, out.numel(), device="cuda", dtype=torch.float64).view_as(out)
    (out.double() * weight).sum().backward()
    return [out.detach().double(), *(part.grad.double() for part in parts)]


def apart(found, expected):
    """Distances over the norms."""
    return [float((ours - other).norm() / other.norm()) for ours, other in zip(found, expected, strict=True)]


@pytest.mark.parametrize("sizes", sorted(SIZES))
@pytest.mark.parametrize(("backend", "visibility", "dtype"), KINDS)
def test_attention_is_that_with_a_mask_in_double_precision(backend, visibility, dtype, sizes):
    visibility = VISIBILITIES[visibility]
    layout = star_layout(SIZES[sizes], PackForm(backend))
    if visibility.blocks:
        blocks = torch.zeros(layout.length, dtype=torch.long)
        blocks[10:200], blocks[220:260] = 1, 2
        layout = replace(layout, blocks=blocks, form=PackForm(backend, image_blocks="all"))
    tensors = on_gpu(*((1, heads, layout.length, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS)))
    rounded = [tensor.to(dtype).double() for tensor in tensors]
    plain = replace(layout, cache={})
    expected = output_and_gradients(lambda *qkv: dense(*qkv, plain, None, visibility), rounded, torch.float64)
    found = output_and_gradients(
        lambda *qkv: BACKENDS[backend](*qkv, layout, None, visibility), rounded, dtype
    )
    distances = apart(found, expected)
    print(" ".join(f"{one:.1e}" for one in distances))
    assert max(distances) < NEAR[dtype]


@pytest.mark.skipif(not find_spec("fla"), reason="needs flash-linear-attention")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("pack", sorted(PACKS))
def test_the_delta_rule_of_the_kernels_is_that_of_transformers(pack, dtype, monkeypatch):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from transformers.models.qwen3_5 import modeling_qwen3_5

    plain = modeling_qwen3_5.torch_chunk_gated_delta_rule
    plain = getattr(plain, "__wrapped__", plain)
    layout = star_layout(PACKS[pack], PackForm("sdpa"))
    heads = (1, layout.length, HEADS)
    tensors = on_gpu(*[(*heads, DIM)] * 3, heads, heads)
    tensors = [*tensors[:3], -tensors[3].abs(), tensors[4].sigmoid()]
    found = {}
    for name, rule in (("plain", plain), ("kernels", chunk_gated_delta_rule)):
        monkeypatch.setattr(recurrent, "_takes_lengths", lambda tensor, name=name: name == "kernels")
        layout = replace(layout, cache={})

        def rule_of_pack(query, key, value, g, beta, rule=rule, layout=layout):
            options = {"g": g.float(), "beta": beta, "use_qk_l2norm_in_kernel": True}
            return recurrent.delta_rule(rule, layout, query, key, value, **options)[0]

        found[name] = output_and_gradients(rule_of_pack, tensors, torch.float32 if name == "plain" else dtype)
    distances = apart(found["kernels"], found["plain"])
    print(pack, " ".join(f"{one:.1e}" for one in distances))
    assert max(distances) < (2e-2 if dtype == torch.bfloat16 else 5e-3)  # TF32 inside the kernels
