"""What watches a run begins on every rank, whatever its pipeline stage trains and however many optimizers it has."""

from types import SimpleNamespace

import pytest
import torch
from megatron.core.optimizer import OptimizerConfig
from megatron.core.optimizer.optimizer import ChainedOptimizer
from torch import nn

from swift_grpo_ext.megatron import watching
from swift_grpo_ext.watch.movement import keeps_masters, local_masters


@pytest.mark.parametrize(("another_trains", "trains"), [(1, True), (0, False)])
def test_a_stage_of_which_nothing_trains_asks_the_others(monkeypatch, another_trains, trains):
    begun = []
    monkeypatch.setattr(watching, "agreed_max", lambda value, device: max(value, another_trains))
    rank = object.__new__(watching.Watching)
    rank.watch = SimpleNamespace(begin=lambda state, trains: begun.append(trains))
    model = nn.Linear(1, 1).requires_grad_(False)
    rank._host = SimpleNamespace(model=model, state=None, accelerator=SimpleNamespace(device="cpu"))
    rank.begin()
    assert begun == [trains]


@pytest.mark.parametrize(("optimizers", "sizes"), [(0, []), (1, [2, 3]), (2, [2, 3, 2, 3])])
def test_float32_copies_are_those_of_every_optimizer_of_a_chain(optimizers, sizes):
    """With expert parallelism experts have one of their own; a stage of which nothing trains has none."""
    config = OptimizerConfig(bf16=True)
    groups = [[torch.zeros(2), torch.zeros(3)], [torch.zeros(0), None]]
    one = SimpleNamespace(config=config, shard_fp32_from_float16_groups=groups)
    chain = ChainedOptimizer([one] * optimizers)
    assert [copy.numel() for copy in local_masters(chain)] == sizes
    assert keeps_masters(chain) is bool(optimizers)


def test_copies_inside_an_optimizer_of_transformer_engine_are_copies():
    one = SimpleNamespace(config=OptimizerConfig(bf16=True), shard_fp32_from_float16_groups=[[None]])
    assert keeps_masters(ChainedOptimizer([one]))
