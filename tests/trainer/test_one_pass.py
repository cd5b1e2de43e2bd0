"""Real runs in which some groups teach nothing: all figures are stock's, and less is forwarded."""

from pathlib import Path

import pytest

from swift_grpo_ext.group import forward
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.trainer import one_pass
from tests.trainer.runs import STOCK, gains, told
from tests.trainer.runs import figures_in_double as figures

PLUGINS = [Path(__file__).with_name("equal_reward.py"), plugin_file()]
RUN = {"reward_funcs": "silent", "external_plugins": PLUGINS, "beta": 0, "per_device_train_batch_size": 8}
RUNS = {
    "grpo": {},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "dapo": {"loss_type": "dapo"},
    "cispo": {"loss_type": "cispo"},
    "sapo": {"loss_type": "sapo"},
    "one row": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
    "one group": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    "two iterations": {"num_iterations": 2, "max_steps": 4},
    "sequence ratio": {"importance_sampling_level": "sequence", "num_iterations": 2, "max_steps": 4},
    "overlong": {"overlong_filter": True, "stop_words": ["e", "a", "<", " "]},
    "lora": {"tuner_type": "lora", "lora_dropout": 0, "target_modules": "all-linear"},
}


@pytest.fixture
def forwarded(monkeypatch):
    """Tokens of each pack that went through the model with gradients."""
    found = []
    original = forward.packed_scores

    def counting(model, head, inputs, pack, **options):
        import torch

        if torch.is_grad_enabled():
            found.append(pack.layout.length)
        return original(model, head, inputs, pack, **options)

    monkeypatch.setattr(one_pass, "packed_scores", counting)
    return found


# In the gate; all others run in `make test-slow`.
FIRST = ("two iterations", "lora")


@pytest.mark.parametrize(
    "run", [pytest.param(run, marks=() if run in FIRST else pytest.mark.slow) for run in sorted(RUNS)]
)
def test_equals_stock(tiny_qwen, run, digits, tmp_path, forwarded):
    stock = figures(tiny_qwen, digits.train, tmp_path / "stock", STOCK, **{**RUN, **RUNS[run]})
    full = {"DISABLE": "trainer.skip_zero_advantage,callbacks.report"}
    figures(tiny_qwen, digits.train, tmp_path / "full", full, **{**RUN, **RUNS[run]})
    everything = sum(forwarded)
    forwarded.clear()
    with told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path / "ours", **{**RUN, **RUNS[run]})
    assert not any("self-check failed" in text for text in messages)
    assert gains(tmp_path / "ours")["skip_zero_advantage"]["state"] == "on"
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
    assert any(value > 1e-4 for value in stock["grad_norm"])
    assert sum(forwarded) < everything or run == "one row"


def test_a_step_of_silent_groups_alone_moves_nothing(tiny_qwen, digits, tmp_path, monkeypatch, forwarded):
    monkeypatch.setenv("SILENT_SHARE", "2")
    ours = figures(tiny_qwen, digits.train, tmp_path, **RUN)
    assert ours["grad_norm"] == [0, 0]
    assert forwarded == [2, 2] or set(forwarded) == {1}, "one small row, so that no rank waits for this one"
