"""M2: the padding of a pack, as Megatron's sequence parallelism makes it."""

import pytest
import torch
from swift.rlhf_trainers.utils import build_completion_mask_and_seq_lengths

from swift_grpo_ext.compat import pack_padding

LENGTHS = [4, 3, 5, 2]


def masks(build, padding, **options):
    """What is built for four rows of which the last token is the completion."""
    positions = torch.cat([*map(torch.arange, LENGTHS), torch.zeros(padding, dtype=torch.long)])[None]
    labels = torch.full_like(positions, -100)
    labels[0, torch.tensor(LENGTHS).cumsum(0) - 1] = 7
    batch = {"position_ids": positions, "text_position_ids": positions}
    return build(labels, len(LENGTHS), padding_free=True, encoded_batch=batch, **options)


def test_before_each_token_of_the_padding_is_a_completion():
    mask, lengths, _ = masks(build_completion_mask_and_seq_lengths, 3)
    assert list(mask.shape) == [7, 5]
    assert lengths.tolist() == [*LENGTHS, 1, 1, 1]


@pytest.mark.parametrize("padding", [0, 1, 3])
def test_rows_are_completions(padding):
    mask, lengths, longest = masks(pack_padding.fix.fix(build_completion_mask_and_seq_lengths), padding)
    assert lengths.tolist() == LENGTHS
    assert longest == 5
    assert mask.sum(dim=1).tolist() == [1, 1, 1, 1]


def test_the_frame_of_the_transformers_trainer_is_left_alone():
    fixed = pack_padding.fix.fix(build_completion_mask_and_seq_lengths)
    for got, expected in zip(
        masks(fixed, 2, logits_to_keep=9),
        masks(build_completion_mask_and_seq_lengths, 2, logits_to_keep=9),
        strict=True,
    ):
        assert torch.equal(torch.as_tensor(got), torch.as_tensor(expected))
