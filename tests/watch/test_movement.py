"""Sampled movement of parameters: shards, and what DeepSpeed keeps."""

import pytest
import torch
from torch import nn

from swift_grpo_ext.watch.movement import (
    Movement,
    Sampler,
    keeps_masters,
    local_masters,
    local_parameters,
)


def test_the_share_is_that_of_the_parameters_not_of_the_samples():
    big, small = torch.zeros(10_000), torch.zeros(100)
    sampler = Sampler(lambda: [big, small])
    small += 1
    assert sampler.look().share == pytest.approx(100 / 10_100)
    big += 1
    assert sampler.look().share == pytest.approx(10_000 / 10_100)
    assert sampler.look().share == 0


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_the_smallest_change_is_movement(kind):
    weight = torch.tensor([1.0, -1.0, 0.5, 2.0], dtype=kind)
    sampler = Sampler(lambda: [weight])
    weight[:2] = torch.tensor([1.0 + torch.finfo(kind).eps, -1.0 - torch.finfo(kind).eps], dtype=kind)
    assert 0 < sampler.look().share < 1
    assert sampler.look().share == 0


def test_movements_of_ranks_add_up():
    assert Movement(elements=100 + 300, moved=0 + 300).share == 0.75
    assert Movement().share is None


def test_a_model_with_many_tensors_is_sampled_from_the_first_to_the_last():
    tensors = [torch.zeros(4) for _ in range(1000)]
    sampler = Sampler(lambda: tensors, limit=16)
    for tensor in (tensors[0], tensors[-1]):
        tensor += 1
    assert sampler.look().share == pytest.approx(2 / 16)


def test_16_bit_weights_at_a_small_learning_rate_hardly_move():
    # B2 of docs/findings.md: an update of 1e-6 is below half a unit in the last place of most bfloat16 weights.
    torch.manual_seed(0)
    shares = {}
    for kind in (torch.float32, torch.bfloat16):
        weight = nn.Parameter(torch.randn(50_000).mul(0.02).to(kind))
        optimizer = torch.optim.AdamW([weight], lr=1e-6)
        sampler = Sampler(lambda weight=weight: [weight], elements=4096)
        weight.grad = torch.randn(50_000).to(kind)
        optimizer.step()
        shares[kind] = sampler.look().share
    assert shares[torch.float32] > 0.99
    assert 0 < shares[torch.bfloat16] < 0.05


class Shards(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)
        self.whole = nn.Parameter(torch.zeros(5))
        self.zero3 = nn.Parameter(torch.empty(0))
        self.zero3.ds_tensor = torch.zeros(7)


def test_a_rank_sees_its_shards_of_trainable_parameters():
    assert sorted(tensor.numel() for tensor in local_parameters(Shards())) == [5, 7]


class Zero2Optimizer:
    single_partition_of_fp32_groups = (torch.zeros(4), torch.zeros(0))


class Wrapper:
    optimizer = Zero2Optimizer()


def test_float32_copies_are_found_behind_the_wrapper_of_accelerate():
    assert [tensor.numel() for tensor in local_masters(Wrapper())] == [4]
    assert list(local_masters(torch.optim.AdamW([torch.zeros(1, requires_grad=True)]))) == []
    assert keeps_masters(Wrapper())
    assert not keeps_masters(torch.optim.AdamW([torch.zeros(1, requires_grad=True)]))
