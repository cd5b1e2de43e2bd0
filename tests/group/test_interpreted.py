"""The kernels of the GPU's way, interpreted on a CPU: of recurrent layers over packs, and of liger's layers.

make test-triton
"""

import importlib

import pytest
import torch
from torch.nn.functional import silu

from swift_grpo_ext.group import recurrent
from tests.group.test_attention import layout_of

pytestmark = pytest.mark.lane
HEADS, DIM = 2, 16
# Chunks of 64 tokens: prompts and completions that end in one, at its end, and beyond it.
PACKS = {
    "one prompt": [(70, [13, 40, 7])],
    "several prompts": [(70, [13, 40, 7]), (65, [1, 80])],
    "whole chunks": [(64, [64, 128])],
    "empty completions": [(5, [3, 0, 4]), (9, [0]), (2, [1])],
}


@pytest.fixture
def kernels():
    """Imports a module of kernels, once there is an interpreter for them."""
    importlib.import_module("tests.group.interpreter")
    return importlib.import_module


@pytest.mark.parametrize("pack", sorted(PACKS))
def test_the_delta_rule_over_a_pack_is_that_of_transformers(pack, kernels, monkeypatch):
    """With flash-linear-attention, runs are told by ``cu_seqlens`` and begin with their prompt's state."""
    theirs = kernels("fla.ops.gated_delta_rule").chunk_gated_delta_rule
    plain = kernels("transformers.models.qwen3_5.modeling_qwen3_5").torch_chunk_gated_delta_rule
    plain = getattr(
        plain, "__wrapped__", plain
    )  # which would call the kernels, too, where they are installed
    layout = layout_of(PACKS[pack], "sdpa")
    torch.manual_seed(0)
    given = [torch.randn(1, layout.length, HEADS, DIM) for _ in range(3)]
    given += [-torch.rand(1, layout.length, HEADS), torch.rand(1, layout.length, HEADS)]
    weights = torch.linspace(-1, 1, layout.length * HEADS * DIM).view(1, layout.length, HEADS, DIM)
    found = []
    for rule, takes_lengths in ((plain, False), (theirs, True)):
        monkeypatch.setattr(recurrent, "_takes_lengths", lambda tensor, takes=takes_lengths: takes)
        query, key, value, g, beta = parts = [part.clone().requires_grad_() for part in given]
        options = {"g": g, "beta": beta, "use_qk_l2norm_in_kernel": True}
        out, _ = recurrent.delta_rule(rule, layout, query, key, value, **options)
        (out * weights).sum().backward()
        found.append([out.detach(), *(part.grad for part in parts)])
    apart = [float((ours - other).norm() / other.norm()) for other, ours in zip(*found, strict=True)]
    print(pack, " ".join(f"{one:.1e}" for one in apart))
    assert max(apart) < 1e-5


def compare(kernel, plain, *shapes):
    """Output and gradients of a kernel and of what it computes."""
    torch.manual_seed(0)
    given = [torch.randn(shape) for shape in shapes]
    found = []
    for function in (kernel, plain):
        parts = [part.clone().requires_grad_() for part in given]
        out = function(*parts)
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        found.append([out.detach(), *(part.grad for part in parts)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_swiglu_of_liger(kernels):
    apply = kernels("liger_kernel.ops.swiglu").LigerSiLUMulFunction.apply
    compare(apply, lambda gate, up: silu(gate) * up, (1, 7, 24), (1, 7, 24))
