"""Micro-batches are cut in halves, and narrowed, on the made-up device: what is decided by is in the main memory."""

import subprocess
import sys
from pathlib import Path

CODE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import torch
from tests.device import made_up
with made_up.present():
    from swift_grpo_ext.group.layout import PackForm
    from swift_grpo_ext.group.micro_batch import analyse, parts_of

    ids = torch.tensor([[5, 6, 7, 8, last, last] for last in range(10, 14)]).to("madeup")
    mask = torch.tensor([[False, True, True]] * 4).to("madeup")
    inputs = {{"input_ids": ids, "attention_mask": torch.ones_like(ids)}}
    batch = analyse(inputs, mask, None, PackForm("sdpa"))
    first_two = mask & torch.tensor([[True], [True], [False], [False]]).to("madeup")
    for tokens, number in ((None, 1), (None, 2), (first_two, 2), (mask & ~mask, 1)):
        parts = parts_of(batch, tokens, number)
        assert all(str(part.pack.source.device).startswith("madeup") for part in parts)
        print([part.pack.layout.length for part in parts])
"""


def test_halves_and_chosen_completions_are_packs_on_the_device():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n") == ["[8]", "[6, 6]", "[5, 5]", "[1]", ""]
