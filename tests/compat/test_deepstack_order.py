"""The order in which hidden states of several rows, ``(position, row, size)``, meet the tower's features."""

from types import SimpleNamespace

import torch

from swift_grpo_ext.compat.deepstack_order import _order

IMAGE, VIDEO = 1, 2
CONFIG = SimpleNamespace(image_token_id=IMAGE, video_token_id=VIDEO)


def test_features_meet_their_tokens_position_by_position():
    """As mcore-bridge does it: the tower has images before videos, and both are joined row by row."""
    tokens = torch.tensor([[0, IMAGE, IMAGE, 0, VIDEO], [IMAGE, 0, VIDEO, 0, 0], [0, 0, IMAGE, IMAGE, IMAGE]])
    tower = torch.cat(
        [(tokens == kind).nonzero() for kind in (IMAGE, VIDEO)]
    )  # of each feature row and position
    moved = tower[_order(tokens, CONFIG)]
    images, seen = tokens == IMAGE, tokens > 0
    joined = torch.zeros(int(seen.sum()), 2, dtype=torch.long)
    joined[images[seen]] = moved[: images.sum()]
    joined[~images[seen]] = moved[images.sum() :]
    assert joined.flip(1).tolist() == seen.T.nonzero().tolist()


def test_of_one_row_nothing_moves():
    tokens = torch.tensor([[0, IMAGE, IMAGE, 0, IMAGE]])
    assert _order(tokens, CONFIG).tolist() == [0, 1, 2]
