"""The pixels of a micro-batch leave it once encoded, and come back for whoever needs them."""

from types import SimpleNamespace

import torch

from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.micro_batch import look_at
from swift_grpo_ext.models.families import QWEN2_5_VL
from swift_grpo_ext.trainer.passes import restore_pixels


def batch_of_two_rows():
    image = [QWEN2_5_VL.image_token_id]
    ids = torch.tensor([[5, *image, 6, 7], [5, *image, 6, 8]])
    pixels = torch.randn(4, 6).repeat(2, 1)
    grid = torch.tensor([[1, 2, 2]]).repeat(2, 1)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    inputs |= {"pixel_values": pixels, "image_grid_thw": grid}
    return inputs, look_at(inputs, torch.ones(2, 1), QWEN2_5_VL, PackForm("two_part"))


def test_pixels_leave_and_come_back():
    inputs, batch = batch_of_two_rows()
    assert [group.completions for group in batch.pack.layout.spans] == [(0, 0)]
    pixels = inputs["pixel_values"]
    batch.offload_pixels()
    assert len(inputs["pixel_values"]) == 0
    assert torch.equal(batch.row_inputs(1)["pixel_values"], pixels[4:])
    holder = SimpleNamespace(swift_grpo_ext=batch)
    copied = dict(inputs)  # as a trainer does that moves its inputs to another device
    restore_pixels(copied, holder)
    assert torch.equal(copied["pixel_values"], pixels)
    assert len(inputs["pixel_values"]) == 0
    restore_pixels(inputs, holder)
    assert torch.equal(inputs["pixel_values"], pixels)


def test_whoever_has_left_nothing_gets_nothing():
    inputs, batch = batch_of_two_rows()
    pixels = inputs["pixel_values"]
    restore_pixels(inputs, SimpleNamespace(swift_grpo_ext=batch))
    restore_pixels(inputs, SimpleNamespace())
    assert inputs["pixel_values"] is pixels
