"""Log-probs of drawn tokens against those of transformers' own filters."""

import pytest
import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from swift_grpo_ext.group.logps import Sampling, sampled_logps
from tests.precision import DOUBLE, in_float64


@pytest.fixture(autouse=True)
def _double():
    with in_float64():
        yield


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.7),
        Sampling(temperature=0.9, top_k=5),
        Sampling(temperature=1.3, top_p=0.8),
        Sampling(temperature=1.0, top_k=50, top_p=0.9),
        Sampling(temperature=1.0, top_k=8, top_p=0.6, min_p=0.1),
        Sampling(temperature=1.0, top_p=1e-6),
    ],
)
def test_equals_what_transformers_samples_from(sampling):
    torch.manual_seed(0)
    logits = torch.randn(40, 64) * 3
    warpers = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    theirs = warpers(None, logits.clone()).log_softmax(-1)
    tokens = torch.multinomial(theirs.exp(), 1, generator=torch.Generator().manual_seed(1))[:, 0]
    expected = theirs.gather(-1, tokens[:, None])[:, 0]
    torch.testing.assert_close(sampled_logps(logits, tokens, sampling), expected, atol=DOUBLE, rtol=0)


def test_a_token_that_the_filters_leave_out_has_a_finite_log_prob():
    logits = torch.tensor([[5.0, 0.0, -5.0]])
    assert sampled_logps(logits, torch.tensor([2]), Sampling(top_k=1)).item() == pytest.approx(
        -10.0, abs=1e-4
    )


def test_what_is_never_drawn_has_no_probability():
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    for sampling in (Sampling(forbidden=(0,)), Sampling(top_k=2, forbidden=(0,))):
        found = sampled_logps(logits, torch.tensor([1]), sampling)
        assert found.item() == pytest.approx(torch.tensor([1.0, 0.0]).log_softmax(-1)[0].item(), abs=1e-6)
