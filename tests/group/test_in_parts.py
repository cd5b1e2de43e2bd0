"""In parts or at once: the same sum and gradients, and one part's graph at a time."""

import torch

from swift_grpo_ext.group.zero_advantage import summed


def test_sum_and_gradients_are_those_of_one_pass():
    torch.manual_seed(0)
    layer, rows = torch.nn.Linear(3, 2), torch.randn(4, 3)
    masks = [torch.tensor([[1.0], [1], [0], [0]]), torch.tensor([[0.0], [0], [1], [1]])]
    gradients = []
    for run in (
        lambda: layer(rows).tanh(),
        lambda: summed([lambda mask=mask: layer(rows).tanh() * mask for mask in masks]),
    ):
        layer.zero_grad()
        scores = run()
        (scores.square().sum().sqrt() + scores.max()).backward()  # no sum over rows
        gradients.append([parameter.grad.clone() for parameter in layer.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
    with torch.no_grad():
        torch.testing.assert_close(summed([lambda: layer(rows)] * 2), 2 * layer(rows))


def test_one_graph_at_a_time():
    weight, saved = torch.ones(3, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda x: x):
        total = summed([lambda: (weight * weight).exp()] * 3)
    assert not any(tensor.numel() == 3 for tensor in saved)
    total.sum().backward()
    torch.testing.assert_close(weight.grad, 3 * 2 * weight.detach() * torch.e)
