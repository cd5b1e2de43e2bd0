"""Where importance sampling is asked for, the engine's log-probs are the old ones: no old pass, the same update."""

from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from tests.trainer.runs import REWARD
from tests.trainer.runs import figures_in_double as figures

TELLING = str(Path(__file__).with_name("logprob_engine.py"))
PASS_BY_PASS = {"DISABLE": "trainer.engine_old_logps"}


@pytest.fixture(autouse=True)
def engine_tells(monkeypatch):
    monkeypatch.setenv("ENGINE_TELLS", "1")


def run(model, digits, output, switches=None, **overrides):
    found = figures(
        model,
        digits.train,
        output,
        switches,
        external_plugins=[REWARD, plugin_file(), TELLING],
        rollout_importance_sampling_mode="token_truncate",
        temperature=1.0,  # transformers tells log-probs before temperature
        # Updates begin within rollouts: else the policy's first pass is the old one.
        **{"num_iterations": 2, "gradient_accumulation_steps": 2, "steps_per_generation": 3},
        **{"beta": 0, "max_steps": 4, **overrides},
    )
    return found, [row for row in testing.read_logging(output) if "loss" in row]


def has_old_pass(logged):
    return any("seconds/old" in row for row in logged)


def test_the_update_is_that_of_an_old_pass(tiny_qwen, digits, tmp_path):
    stock, their_log = run(tiny_qwen, digits, tmp_path / "stock", PASS_BY_PASS)
    ours, our_log = run(tiny_qwen, digits, tmp_path / "ours")
    assert has_old_pass(their_log)
    assert not has_old_pass(our_log)
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-5, rel=2e-4), name
    kl = [[row["rollout_correction/kl"] for row in log] for log in (our_log, their_log)]
    assert kl[0][0] == pytest.approx(kl[1][0], abs=1e-5)
    assert any(kl[0][1:]), "the figures are of the policy, not of the engine with itself"


@pytest.mark.parametrize(
    "overrides",
    [{"top_p": 0.9}, {"log_rollout_offpolicy_metrics": True}, {"beta": 0.1, "kl_in_reward": True}],
)
def test_the_pass_stays_where_it_is_needed(overrides, tiny_qwen, digits, tmp_path):
    _, logged = run(tiny_qwen, digits, tmp_path, **{"max_steps": 1, **overrides})
    assert has_old_pass(logged)
