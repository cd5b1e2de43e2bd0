"""The pixels of a micro-batch leave the device once encoded, and come back for whoever reads them."""

import torch

from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.micro_batch import analyse
from swift_grpo_ext.models.families.qwen2 import QWEN2_5_VL
from tests.group.stars import rows_in


def batch_of_two_rows():
    image = [QWEN2_5_VL.image_token_id]
    ids = torch.tensor([[5, *image, 6, 7], [5, *image, 6, 8]])
    pixels = torch.randn(4, 6).repeat(2, 1)
    grid = torch.tensor([[1, 2, 2]]).repeat(2, 1)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    inputs |= {"pixel_values": pixels, "image_grid_thw": grid}
    return inputs, analyse(inputs, torch.ones(2, 1), QWEN2_5_VL, PackForm("sdpa"))


def test_pixels_leave_and_come_back():
    inputs, batch = batch_of_two_rows()
    assert rows_in(batch.pack) == 2
    pixels = inputs["pixel_values"]
    stored = batch.store_pixels()
    (images,) = batch.media.values()
    assert len({part.data_ptr() for part in images.parts}) == 1, "of equal images once"
    assert torch.equal(batch.row_inputs(range(1, 2))["pixel_values"], pixels[4:])
    assert set(stored) == set(inputs)
    assert len(stored) == len(inputs)
    for whole in (dict(stored), {**stored}):  # whoever reads them
        assert torch.equal(whole["pixel_values"], pixels)
        assert all(torch.equal(whole[name], inputs[name]) for name in inputs)
    assert inputs["pixel_values"] is pixels, "nothing is taken from a dictionary of others"


def test_stored_inputs_take_what_is_written():
    _, batch = batch_of_two_rows()
    stored = batch.store_pixels()
    stored["use_cache"] = False
    assert stored["use_cache"] is False
    stored["pixel_values"] = "other"
    assert dict(stored)["pixel_values"] == "other"
    del stored["pixel_values"]
    assert "pixel_values" not in stored
