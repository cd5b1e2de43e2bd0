"""An update with gradients that are not finite is skipped, counted, and said."""

import math

import pytest
import torch
from accelerate import Accelerator
from swift.trainers import SwiftMixin, mixin


@pytest.fixture
def warnings(monkeypatch):
    said = []
    monkeypatch.setattr(mixin.logger, "warning", lambda message, *args, **kwargs: said.append(message))
    return said


def updated(*gradients):
    """Parameters, all 1 before, after one SGD step per gradient under the host's clipping."""
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    accelerator = Accelerator(cpu=True)
    with SwiftMixin._fix_grad_norm_nan():
        for gradient in gradients:
            parameter.grad = torch.tensor(gradient)
            accelerator.clip_grad_norm_([parameter], 1.0)
            optimizer.step()
    return parameter.tolist()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_parameters_stay_as_they_were(bad):
    assert updated([bad, 1.0]) == [1, 1]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_every_skipped_update_is_said_and_counted(warnings, bad):
    updated([bad, 1.0], [0.5, 0.0], [1.0, bad])
    assert ["1 skipped so far" in said or "2 skipped so far" in said for said in warnings] == [True, True]


def test_finite_gradients_are_clipped_as_before(warnings):
    assert updated([3.0, 4.0]) == pytest.approx([1 - 0.5 * 0.6, 1 - 0.5 * 0.8])
    assert not warnings
