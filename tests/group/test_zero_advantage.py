"""Completions without a gradient: which they are, and that leaving them out changes none."""

import pytest
import torch

from swift_grpo_ext.group.micro_batch import first_token
from swift_grpo_ext.group.zero_advantage import needed_tokens, restored, zero_advantage_rows

MASK = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 0], [1, 0, 0]], dtype=torch.bool)


def test_rows_of_advantage_0_and_rows_without_a_loss_are_silent():
    advantages = torch.tensor([[0.0, 0, 9], [0, 0, 1e-30], [1, 1, 1], [-1, 0, 0]])
    assert zero_advantage_rows(advantages, MASK).tolist() == [True, False, True, False]
    assert zero_advantage_rows(torch.tensor([0.0, 1, 1, 1]), MASK).tolist() == [True, False, True, False]
    filtered = torch.tensor([False, True, False, False])
    assert zero_advantage_rows(advantages, MASK, filtered).tolist() == [True, True, True, False]
    assert not zero_advantage_rows(torch.full((4, 3), torch.nan), MASK)[:2].any(), "NaN is a label of REAL"


def test_tokens_that_are_heard():
    silent = torch.tensor([True, False, False, False])
    assert needed_tokens(MASK, silent).sum(1).tolist() == [0, 3, 0, 1]


def test_the_first_token_of_the_first_row_that_has_one():
    assert first_token(MASK[2:]).nonzero().tolist() == [[1, 0]]
    assert not first_token(MASK[2:3]).any()


@pytest.mark.parametrize("old", [None, torch.full((4, 3), -2.0)])
def test_what_is_not_heard_has_the_ratio_1(old):
    scores = torch.randn(4, 3, 2, requires_grad=True)
    tokens = needed_tokens(MASK, torch.tensor([True, False, False, False]))
    logps, _ = restored(scores, tokens, old)
    assert torch.equal(logps[tokens], scores[..., 0][tokens])
    assert (logps[~tokens] == (0 if old is None else -2)).all()


def test_a_micro_batch_without_any_keeps_the_graph_and_no_gradient():
    scores = torch.randn(4, 3, 2, requires_grad=True)
    logps, _ = restored(scores, torch.zeros_like(MASK), None)
    assert (logps == 0).all()
    logps.sum().backward()
    assert (scores.grad == 0).all()
