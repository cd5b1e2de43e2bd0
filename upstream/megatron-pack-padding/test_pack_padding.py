"""The completion mask of a Megatron pack that is padded to a multiple of the tensor-parallel ranks."""

import pytest
import torch
from swift.rlhf_trainers.utils import build_completion_mask_and_seq_lengths


@pytest.mark.parametrize("padding", [0, 1, 3])
def test_there_are_as_many_rows_as_completions(padding):
    lengths = [4, 3, 5, 2]
    positions = torch.cat([*map(torch.arange, lengths), torch.zeros(padding, dtype=torch.long)])[None]
    labels = torch.full_like(positions, -100)
    for end in torch.tensor(lengths).cumsum(0):
        labels[0, end - 1] = 7
    mask, rows, longest = build_completion_mask_and_seq_lengths(
        labels, len(lengths), padding_free=True, encoded_batch={"position_ids": positions}
    )
    assert list(mask.shape) == [4, 5]
    assert rows.tolist() == lengths
    assert longest == 5
    assert mask.sum(dim=1).tolist() == [1, 1, 1, 1]
