"""The made-up device finds what a GPU run would stumble over: it refuses, counts and runs full, by name."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("made_up")  # one worker, whose process has the device for all of them
PLANTED = {
    "mixed": "weight @ torch.ones(4, 4)",
    "waited": "[float(layer.sum()) for layer in (weight, weight, weight)]; found = sum(ledger.waits.values())",
    "leaked": """
kept, before = [], ledger.allocated
for _ in range(3):
    kept.append(torch.ones(256, 4, device="madeup"))
found = [ledger.allocated - before]
kept.clear()
found.append(ledger.allocated - before)""",
    "copied": """
there = torch.ones(4)
there.to("madeup"), there.to("madeup", non_blocking=True), there.pin_memory().to("madeup", non_blocking=True)
weight.copy_(torch.ones(4, 4))
found = dict(ledger.copies)""",
    "full": "ledger.limit = 1000; torch.ones(1000, device='madeup')",
    "full in a backward pass": """
weight.requires_grad_()
loss = (weight @ weight).sum()
ledger.limit = ledger.allocated + 50
loss.backward(torch.ones((), device="madeup"))""",
    "cast": """
with torch.autocast("madeup", torch.bfloat16):
    found = [str((weight @ weight).dtype), str((weight @ weight).softmax(-1).dtype)]""",
    "recomputed under autocast": """
from torch.utils.checkpoint import checkpoint
layer = torch.nn.Linear(4, 4).to("madeup")
with torch.autocast("madeup", torch.bfloat16):
    made = checkpoint(layer, weight.requires_grad_(), use_reentrant=False)
made.float().sum().backward()
found = [str(made.dtype), str(layer.weight.grad.dtype)]""",
    "attended": """
rows = torch.ones(1, 1, 512, 4, device="madeup", requires_grad=True)
ledger.reset()
before = ledger.allocated
torch.nn.functional.scaled_dot_product_attention(rows, rows, rows, is_causal=True).sum().backward()
found = max(ledger.peaks.values()) - before""",
}
CODE = """
import json, sys
sys.path.insert(0, {root!r})
import torch
from tests.device import made_up

told = {{}}
with made_up.present() as ledger:
    for name, code in json.loads({planted!r}).items():
        ledger.reset()
        ledger.limit = 0
        scope = {{"torch": torch, "ledger": ledger, "weight": torch.ones(4, 4, device="madeup"), "found": None}}
        try:
            exec(code, scope)
            told[name] = scope["found"]
        except Exception as error:
            told[name] = f"{{type(error).__name__}}: {{error}}"
print(json.dumps(told))
"""


@cache
def told():
    """What came of each, in a process of its own: a device type is registered once and for all."""
    code = CODE.format(root=str(Path(__file__).parents[2]), planted=json.dumps(PLANTED))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("mixed", "RuntimeError: Expected all tensors to be on the same device: aten.mm"),
        ("full", "OutOfMemoryError: madeup out of memory"),
        ("full in a backward pass", "OutOfMemoryError: madeup out of memory"),
    ],
)
def test_a_gpu_would_refuse(name, error):
    assert told()[name].startswith(error)


def test_each_look_at_a_value_is_a_wait():
    assert told()["waited"] == 3


def test_copies_are_told_apart_by_what_they_wait_for():
    assert told()["copied"] == {"waited for": 2, "pageable": 1, "pinned": 1}


def test_a_kept_tensor_is_counted_until_it_is_freed():
    assert told()["leaked"] == [12288, 0]


def test_autocast_takes_products_to_16_bits_and_softmax_to_32():
    assert told()["cast"] == ["torch.bfloat16", "torch.float32"]


def test_what_a_checkpoint_computes_again_is_cast_as_before():
    assert told()["recomputed under autocast"] == ["torch.bfloat16", "torch.float32"]


def test_attention_never_holds_the_scores_of_all_pairs():
    assert told()["attended"] < 512 * 512 * 4 / 8
