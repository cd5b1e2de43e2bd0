"""The first value that is not finite is named, in real runs and alone."""

import torch
from torch import nn

from swift_grpo_ext.trainer.numerics import bad_rows, first_bad_module


def test_updates_dropped_for_a_nan_gradient_are_counted(watched_run):
    run = watched_run("Good", callbacks="test_nan_gradient", max_steps=5)
    assert [step["watch/skipped"] for step in run.steps] == [0, 1, 1, 1, 1]
    assert "grad_norm is not finite, and ms-swift drops such updates" in run.verdict("parameters-still")
    assert not list((run.folder / "watch").glob("numerics*")), "no batch is dumped"


def test_nan_log_probs_are_named_with_module_and_rows(watched_run):
    run = watched_run("Good", callbacks="test_nan_module", max_steps=2)
    (fault,) = [event for event in run.events if event["kind"] == "numerics"]
    assert fault["tensor"] == "log-probs"
    assert fault["module"].endswith("language_model.layers.1.mlp")
    assert fault["rows"] == [7]


def test_rows_are_looked_at_only_where_the_mask_is_on():
    values = torch.tensor([[0.0, torch.nan], [0.0, 1.0], [torch.inf, 0.0]])
    assert bad_rows(values) == (0, 2)
    assert bad_rows(values, torch.tensor([[1, 0], [1, 1], [1, 1]])) == (2,)
    assert bad_rows(values[1:2]) == ()


def test_the_innermost_module_that_breaks_is_named():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    model[1][0].weight.data.fill_(torch.inf)
    assert first_bad_module(model, lambda: model(torch.ones(1, 2))) == "1.0"
    model[1][0].weight.data.fill_(1.0)
    assert first_bad_module(model, lambda: model(torch.ones(1, 2))) == ""
