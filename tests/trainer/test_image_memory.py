"""Prepared images hold a share of the memory that is free, in the floats that the tower reads."""

import pytest
import torch

from swift_grpo_ext import testing
from swift_grpo_ext.models.image_pipeline import PreparedImageCache
from swift_grpo_ext.models.template import STORE_MIB
from swift_grpo_ext.trainer import image_memory
from swift_grpo_ext.trainer.grpo import GRPOTrainer
from tests.trainer.runs import figures

GIB = 2**30


@pytest.mark.parametrize(
    ("free", "ranks", "mebibytes"),
    [(16 * GIB, 1, 2048), (16 * GIB, 4, 512), (10**15, 1, 8192), (0, 8, 64), (None, 8, STORE_MIB)],
)
def test_a_share_of_what_is_free(free, ranks, mebibytes):
    assert image_memory.store_mebibytes(free, ranks) == mebibytes


def test_a_smaller_bound_lets_the_oldest_go():
    store = PreparedImageCache(10)
    for key in "abc":
        store.get(key, lambda key=key: key, lambda value: 3)
    store.bound(6)
    assert store.counts.held_bytes == 6
    assert store.get("b", lambda: "made anew", lambda value: 3) == "b"
    assert store.get("a", lambda: "made anew", lambda value: 3) == "made anew"


def test_a_run_of_16_bits_keeps_its_pixels_in_them(tiny_qwen, digits, tmp_path, monkeypatch):
    seen = {}
    passes = GRPOTrainer._prepare_batch_inputs

    def look(trainer, samples):
        batches = passes(trainer, samples)
        store = trainer.template.images.store
        seen["limit"] = store.limit
        seen["dtypes"] = {
            held.tensors["pixel_values"].dtype
            for key, (held, _) in store._held.items()
            if key[0] == "prepared"
        }
        return batches

    monkeypatch.setattr(image_memory, "free_bytes", lambda: 8 * GIB)
    monkeypatch.setattr(GRPOTrainer, "_prepare_batch_inputs", look)
    run = {"torch_dtype": "bfloat16", "bf16": True, "max_steps": 2}
    kept = figures(tiny_qwen, digits.train, tmp_path / "kept", {"CONSOLE": "figures"}, **run)
    assert seen == {"limit": GIB, "dtypes": {torch.bfloat16}}
    monkeypatch.setattr(image_memory, "_dtype_of_tower", lambda host: None)
    assert figures(tiny_qwen, digits.train, tmp_path / "whole", **run) == kept
    assert seen["dtypes"] == {torch.float32}
    assert testing.read_logging(tmp_path / "kept")[0]["watch/resident_gib"] > 0.1
