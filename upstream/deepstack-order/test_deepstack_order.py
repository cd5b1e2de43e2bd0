"""Deepstack features of padded rows land on the tokens of their own images."""

import pytest

from tests.megatron.comparing import LOG_PROBS, log_prob_difference
from tests.megatron.runs import train_megatron
from tests.megatron.table import FROZEN


@pytest.mark.timeout(280)
def test_log_probs_of_padded_rows_are_those_of_transformers(python, tiny, mixed_rows, reference, tmp_path):
    run = train_megatron(python, tiny("qwen3_vl"), mixed_rows, tmp_path, **FROZEN, padding_free=False)
    expected = reference("qwen3_vl", "mixed", **FROZEN)
    apart = [log_prob_difference(*pair) for pair in zip(run.samples, expected.samples, strict=True)]
    assert [share for share in apart if share > LOG_PROBS] == []
