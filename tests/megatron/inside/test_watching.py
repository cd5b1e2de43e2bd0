"""What watches a run begins on every rank, whatever its pipeline stage trains."""

from types import SimpleNamespace

import pytest
from torch import nn

from swift_grpo_ext.megatron import watching


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
