"""Two towers are compared by what each rank holds of them."""

import pytest
import torch
from torch import nn

from swift_grpo_ext.group.vision_once import same_weights

WHOLE = torch.tensor([1.0, 2.0, 3.0])  # two ranks: two values, and a value with padding


def partitioned(whole, rank, padding):
    """As DeepSpeed partitions a parameter (stand-in for ZeRO-3); the padding is memory that nobody set."""
    module = nn.Module()
    module.weight = nn.Parameter(torch.empty(0))
    padded = torch.cat([whole, torch.tensor([padding])])
    module.weight.ds_tensor = padded[2 * rank : 2 * rank + 2]
    module.weight.ds_numel = len(whole)
    module.weight.ds_process_group = None
    return module


@pytest.mark.parametrize("rank", [0, 1])
def test_padding_is_no_weight(rank, monkeypatch):
    monkeypatch.setattr(torch.distributed, "get_rank", lambda group: rank)
    ours = partitioned(WHOLE, rank, 4e30)
    assert same_weights(ours, partitioned(WHOLE, rank, float("nan")))
    assert not same_weights(ours, partitioned(WHOLE + 1, rank, 4e30))


def test_whole_parameters():
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    assert not same_weights(one, other)
    other.load_state_dict(one.state_dict())
    assert same_weights(one, other)
