"""One NaN among the values of a metric does not hide the others in the log."""

import math

from swift.rlhf_trainers import GRPOTrainer


def test_the_mean_is_over_finite_values(grpo, monkeypatch):
    compute = GRPOTrainer._compute_advantages

    def with_probe(self, *args, **kwargs):
        self._metrics["train"]["probe"].extend([1.0, math.nan, 3.0])
        self._metrics["train"]["only_nan"].append(math.nan)
        return compute(self, *args, **kwargs)

    monkeypatch.setattr(GRPOTrainer, "_compute_advantages", with_probe)
    step = grpo(max_steps=1)[0]
    assert step["probe"] == 2
    assert "only_nan" not in step
