"""Rows that lie end to end are the rows of a batch with padding on the left."""

import pytest
import torch

from swift_grpo_ext.group.micro_batch import as_flat_row, as_rows, is_flat
from swift_grpo_ext.group.shared_prefix import CannotPackError


def flat():
    text = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4]])
    return {
        "input_ids": torch.arange(10, 18)[None],
        "position_ids": (text * 10).expand(3, 1, -1),
        "text_position_ids": text,
        "cu_seq_lens_q": torch.tensor([0, 3, 8]),
        "pixel_values": torch.ones(4, 2),
    }


def test_rows_and_back():
    inputs = flat()
    assert is_flat(inputs)
    rows = as_rows(inputs, batch=2, keep=6)
    assert rows["attention_mask"].tolist() == [[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1]]
    assert rows["input_ids"].tolist() == [[0, 0, 0, 10, 11, 12], [0, 13, 14, 15, 16, 17]]
    assert rows["position_ids"].shape == (3, 2, 6)
    assert rows["position_ids"][2, 1].tolist() == [0, 0, 10, 20, 30, 40]
    assert rows["pixel_values"] is inputs["pixel_values"]
    assert not is_flat(rows)
    assert not {"cu_seq_lens_q", "text_position_ids"} & set(rows)
    one = {name: rows[name][..., 1:2, :] for name in ("input_ids", "position_ids", "attention_mask")}
    alone = as_flat_row(one)
    assert alone["input_ids"].tolist() == [[13, 14, 15, 16, 17]]
    assert alone["position_ids"][0].tolist() == [[0, 10, 20, 30, 40]]
    assert is_flat(alone)


@pytest.mark.parametrize("batch", [1, 3])
def test_other_numbers_of_rows_are_told(batch):
    with pytest.raises(CannotPackError, match=f"2 rows without padding for {batch} completions"):
        as_rows(flat(), batch, keep=4)


def test_rows_without_places_are_told():
    with pytest.raises(CannotPackError, match="without places"):
        as_rows({"input_ids": torch.ones(1, 4, dtype=torch.long)}, 1, keep=2)
