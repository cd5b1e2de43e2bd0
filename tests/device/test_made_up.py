"""The made-up device finds what a GPU run would stumble over: it refuses, counts and runs full, by name."""

import subprocess
import sys
from pathlib import Path

import pytest

PLANTED = """
import sys
sys.path.insert(0, {folder!r})
import made_up, torch

with made_up.present() as ledger:
    weight = torch.ones(4, 4, device="madeup")
    with made_up.phase("update"):
        {body}
"""

MIXED = "weight @ torch.ones(4, 4)"
WAITED = "[float(layer.sum()) for layer in (weight, weight, weight)]; print(sum(ledger.waits.values()))"
LEAKED = """
        kept, before = [], ledger.allocated
        for _ in range(3):
            kept.append(torch.ones(256, 4, device="madeup"))
        print(ledger.allocated - before)
        kept.clear()
        print(ledger.allocated - before)"""
FULL = "ledger.limit = 1000; torch.ones(1000, device='madeup')"
CAST = """
        with torch.autocast("madeup", torch.bfloat16):
            print((weight @ weight).dtype, (weight @ weight).softmax(-1).dtype)"""


def planted(body: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: a device type is registered once and for all."""
    code = PLANTED.format(folder=str(Path(__file__).parent), body=body)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (MIXED, "Expected all tensors to be on the same device: aten.mm"),
        (FULL, "OutOfMemoryError: madeup out of memory"),
    ],
)
def test_a_gpu_would_refuse(body, error):
    done = planted(body)

    assert done.returncode == 1
    assert error in done.stderr


def test_each_look_at_a_value_is_a_wait():
    assert planted(WAITED).stdout.split() == ["3"]


def test_a_kept_tensor_is_counted_until_it_is_freed():
    assert planted(LEAKED).stdout.split() == ["12288", "0"]


def test_autocast_takes_products_to_16_bits_and_softmax_to_32():
    assert planted(CAST).stdout.split() == ["torch.bfloat16", "torch.float32"]
