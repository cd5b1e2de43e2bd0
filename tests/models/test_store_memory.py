"""Five hundred steps over two thousand pictures: what is in memory stays flat, and within the store's bound."""

import ctypes
import io

import numpy
import psutil
import pytest
import torch
from PIL import Image

from swift_grpo_ext.models.image_pipeline import ImagePipeline, PreparedImageCache

MIB = 2**20
process = psutil.Process()
LIMIT = 256 * MIB
STEPS, IMAGES, PER_STEP = 500, 2000, 8
SIDE = 512  # pixels: 0.75 MiB decoded, as much resized, 3 MiB prepared


def prepare(image):
    pixels = torch.from_numpy(numpy.asarray(image).copy()).float()
    return {"pixel_values": pixels.flatten(0, 1)}, image.size, [0]


def encoded(number):
    """A picture with a content of its own, that costs little to make and to read."""
    pixels = numpy.zeros((SIDE, SIDE, 3), dtype=numpy.uint8)
    pixels[: number % SIDE + 1, number // SIDE :] = number % 251
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "bmp")
    return file.getvalue()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_resident_set_is_flat():
    pipeline = ImagePipeline(PreparedImageCache(LIMIT), lambda image, options: image.copy(), prepare)
    before = process.memory_info().rss
    taken = []
    in_use = []  # without what the allocator keeps for later, which differs from process to process
    for step in range(STEPS):
        for number in range(step * PER_STEP, (step + 1) * PER_STEP):
            pipeline.prepare_all([encoded(number * 7 % IMAGES)], {})
        taken.append((process.memory_info().rss - before) / MIB)
        if step % 100 == 99:
            ctypes.CDLL(None).malloc_trim(0)
            in_use.append((process.memory_info().rss - before) / MIB)
    full = taken[100:]  # the store is full after some 60 steps
    print(f"MiB above the start: {min(full):.0f} to {max(full):.0f}, the last {full[-1]:.0f}")
    print("in use:", *(f"{mebibytes:.0f}" for mebibytes in in_use))
    assert pipeline.store.counts.held_bytes <= LIMIT
    assert max(in_use) < 1.1 * LIMIT / MIB
    assert max(taken[-100:]) < max(taken[100:200]) + 32
