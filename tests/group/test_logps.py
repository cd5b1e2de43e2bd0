import pytest
import torch
from torch import nn

from swift_grpo_ext.group.logps import TokenQuery, score, scores_for_logits
from tests.precision import DOUBLE, in_float64

N, HIDDEN, VOCAB = 13, 8, 50


@pytest.fixture(autouse=True)
def _double():
    with in_float64():
        yield


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return nn.Linear(HIDDEN, VOCAB, bias=False).double()


@pytest.fixture
def hidden():
    torch.manual_seed(1)
    return torch.randn(N, HIDDEN, dtype=torch.float64)


def query(**options):
    options.setdefault("vocab_size", VOCAB)
    return TokenQuery(torch.arange(N) % VOCAB, **options)


@pytest.mark.parametrize("chunk", [1, 4, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_equals_log_softmax_with_gradients(layer, hidden, chunk, temperature):
    ask = query(temperature=temperature, chunk_bytes=chunk * 4 * VOCAB, with_entropy=True)
    inputs = [hidden.requires_grad_(), layer.weight]
    scores = score(hidden, layer, ask)
    logps = (layer(hidden) / temperature).log_softmax(-1)
    expected = logps.gather(-1, ask.targets[:, None])[:, 0]
    torch.testing.assert_close(scores[:, 0], expected, atol=DOUBLE, rtol=0)
    entropy = -(logps.exp() * logps).sum(-1)
    torch.testing.assert_close(scores[:, 1], entropy, atol=DOUBLE, rtol=0)
    ours = torch.autograd.grad(scores[:, 0].sum(), inputs)
    for one, two in zip(torch.autograd.grad(expected.sum(), inputs), ours, strict=True):
        torch.testing.assert_close(two, one, atol=DOUBLE, rtol=DOUBLE)


def test_no_more_than_a_chunk_of_logits_at_once(layer, hidden):
    seen = []
    score(
        hidden.requires_grad_(),
        lambda states: seen.append(len(states)) or layer(states),
        query(chunk_bytes=4 * 4 * VOCAB),
    )
    assert seen == [4, 4, 4, 1]


def test_entropy_has_no_gradient_and_is_zero_unless_asked_for(layer, hidden):
    assert score(hidden, layer, query())[:, 1].abs().sum() == 0
    scores = score(hidden.requires_grad_(), layer, query(with_entropy=True))
    assert torch.autograd.grad(scores[:, 1].sum(), hidden)[0].abs().sum() == 0


def test_the_layer_answers_with_scores_only_inside(layer, hidden):
    before = layer(hidden)
    with scores_for_logits(layer, query(), lambda states: states[0]):
        assert layer(hidden[None]).shape == (N, 2)
    assert torch.equal(layer(hidden), before)
    assert "forward" not in vars(layer)


def test_a_forward_that_someone_else_put_on_the_layer_comes_back(layer, hidden):
    original = layer.forward
    layer.forward = lambda states: original(states) * 2
    doubled = layer(hidden)
    with pytest.raises(RuntimeError), scores_for_logits(layer, query(), lambda states: states):
        raise RuntimeError
    assert torch.equal(layer(hidden), doubled)
