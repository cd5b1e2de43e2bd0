"""With a pipeline the KL in rewards is that of the last stage, on every stage."""

import pytest

from tests.megatron.runs import train_megatron
from tests.megatron.table import FROZEN, PIPELINE


@pytest.mark.timeout(600)
def test_two_stages_train_as_one_rank_does(python, tiny, four_rows, tmp_path):
    model = tiny("qwen2_5_vl")
    options = {**FROZEN, "advantage_estimator": "reinforce_plus_plus"}  # has the KL in rewards by default
    run = train_megatron(python, model, four_rows, tmp_path / "pipeline", ranks=2, **PIPELINE, **options)
    expected = train_megatron(python, model, four_rows, tmp_path / "one", **options)
    for name in ("grad_norm", "kl", "reward"):
        logged = ([log[name] for log in logs] for logs in (run.logs, expected.logs))
        assert next(logged) == pytest.approx(next(logged), rel=1e-5, abs=1e-6)
