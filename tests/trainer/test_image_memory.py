"""Prepared images hold a share of the memory that is free, in the floats that the tower reads."""

import json
from statistics import mean
from types import SimpleNamespace

import numpy
import pytest
import torch
from PIL import Image

from swift_grpo_ext.models.image_pipeline import PreparedImageCache
from swift_grpo_ext.trainer import image_memory
from swift_grpo_ext.trainer.grpo import GRPOTrainer
from tests.trainer.runs import figures

GIB = 2**30


@pytest.mark.parametrize(
    ("free", "ranks", "mebibytes"),
    [(16 * GIB, 1, 2048), (16 * GIB, 4, 512), (10**15, 1, 8192), (0, 8, 64)],
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

    monkeypatch.setattr(image_memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=8 * GIB))
    monkeypatch.setattr(GRPOTrainer, "_prepare_batch_inputs", look)
    run = {"torch_dtype": "bfloat16", "bf16": True, "max_steps": 2}
    kept = figures(tiny_qwen, digits.train, tmp_path / "kept", **run)
    assert seen == {"limit": GIB, "dtypes": {torch.bfloat16}}
    monkeypatch.setattr(image_memory, "_dtype_of_tower", lambda host: None)
    assert figures(tiny_qwen, digits.train, tmp_path / "whole", **run) == kept
    assert seen["dtypes"] == {torch.float32}


STEPS, PROMPTS, LIMIT_MIB = 500, 4, 128
WIDTH, HEIGHT = 1280, 960  # pixels of a picture: 3.5 MiB decoded


def large_pictures(folder, count):
    """A dataset of rows that have a large picture each, with a content of its own."""
    rows = []
    for number in range(count):
        pixels = numpy.zeros((HEIGHT, WIDTH, 3), dtype=numpy.uint8)
        pixels[: number % HEIGHT + 1, number // 3 :] = 1 + number % 251
        path = folder / f"{number}.jpg"
        Image.fromarray(pixels).save(path)
        messages = [{"role": "user", "content": "<image>What is it?"}]
        rows.append({"messages": messages, "images": [str(path)], "solution": str(number % 10)})
    dataset = folder / "rows.jsonl"
    dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return dataset


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_five_hundred_steps_over_two_thousand_large_pictures_stay_flat(tiny_qwen, tmp_path, monkeypatch):
    """Each is seen once, so whatever is kept of them for good is 1 MiB or more a picture."""
    monkeypatch.setenv("MAX_PIXELS", str(256 * 28 * 28))
    dataset = large_pictures(tmp_path, STEPS * PROMPTS)
    run = {"max_steps": STEPS, "num_generations": 2, "per_device_train_batch_size": 2 * PROMPTS, "beta": 0}
    monkeypatch.setattr(image_memory, "MOST_MIB", LIMIT_MIB)
    resident = []  # MiB, at each rollout
    passes = GRPOTrainer._prepare_batch_inputs

    def look(trainer, samples):
        resident.append(image_memory.psutil.Process().memory_info().rss / 2**20)
        return passes(trainer, samples)

    monkeypatch.setattr(GRPOTrainer, "_prepare_batch_inputs", look)
    figures(tiny_qwen, dataset, tmp_path / "run", max_completion_length=4, **run)
    filled, last = mean(resident[150:250]), mean(resident[-100:])
    print(
        f"resident MiB: {resident[0]:.0f} at first, {filled:.0f} once the store is full, {last:.0f} at the end"
    )
    assert len(resident) == STEPS
    assert last < filled + LIMIT_MIB / 4
    assert max(resident) < resident[0] + 4 * LIMIT_MIB  # all pictures would be 9 GiB
