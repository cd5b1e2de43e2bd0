"""Where importance sampling is asked for, the engine's log-probs are the old ones: no old pass, the same update."""

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.watch.journal import read_events
from tests.trainer.runs import REWARD, figures

TELLING = __file__.replace("test_engine_old", "telling_engine")
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
        **{"num_iterations": 2, "beta": 0, "max_steps": 4, **overrides},
    )
    (folder,) = output.glob("v*")
    (bill,) = (event["text"] for event in read_events(folder, ["note"]) if event["id"] == "bill")
    logged = [row for row in testing.read_logging(output) if "loss" in row]
    return found, bill, logged


def test_the_update_is_that_of_an_old_pass(tiny_qwen, digits, tmp_path):
    stock, with_pass, their_log = run(tiny_qwen, digits, tmp_path / "stock", PASS_BY_PASS)
    ours, without_pass, our_log = run(tiny_qwen, digits, tmp_path / "ours")
    assert "old log-probs" in with_pass
    assert "old log-probs" not in without_pass
    assert "% of passes" in without_pass
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
    _, bill, _ = run(tiny_qwen, digits, tmp_path, **{"max_steps": 1, **overrides})
    assert "old log-probs" in bill
