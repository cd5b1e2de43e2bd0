"""Real runs: with prompts and images shared, every logged figure is that of the stock passes."""

import pytest

from swift_grpo_ext.trainer import features, passes
from tests.trainer.runs import STOCK, told
from tests.trainer.runs import figures_in_double as figures

LORA = {"tuner_type": "lora", "lora_dropout": 0, "lora_rank": 4, "target_modules": "all-linear"}
GROUPS = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
RUNS = {
    "full": {},
    "full, no reference": {"beta": 0},
    "lora": LORA,
    "lora, no reference": {**LORA, "beta": 0},
    "no checkpointing": {"gradient_checkpointing": False},
    "several groups": {"per_device_train_batch_size": 8},
    "half a group": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2},
    "one row": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4},
    "ragged, left": {"stop_words": ["e", "a", "<", " "], "padding_side": "left"},
    "ragged, right": {"stop_words": ["e", "a", "<", " "], "per_device_train_batch_size": 8},
    "entropy": {"log_entropy": True, "top_entropy_quantile": 0.5, "temperature": 0.8},
    "two iterations": {"num_iterations": 2, "max_steps": 4},
    "off policy": {"steps_per_generation": 2, "per_device_train_batch_size": 2},
    "kl in reward": {"advantage_estimator": "rloo"},
    "dapo": {"loss_type": "dapo", "per_device_train_batch_size": 8},
    "sequence ratio": {"importance_sampling_level": "sequence"},
}


# In the gate; all others run in `make test-slow`.
OF_OVIS = ("full", "ragged, left")
OF_QWEN = (
    *("full", "lora", "no checkpointing", "several groups", "half a group", "one row"),
    *("ragged, right", "two iterations", "off policy"),
)
WAYS = [
    pytest.param(family, run, marks=() if run in of_gate else pytest.mark.slow)
    for family, of_gate in (("qwen2_5_vl", OF_QWEN), ("ovis2", OF_OVIS))
    for run in sorted(RUNS)
]


@pytest.mark.parametrize(("family", "run"), WAYS)
def test_equals_the_stock_passes(family, run, tiny_qwen, tiny_ovis, digits, tmp_path, caplog):
    model = {"qwen2_5_vl": tiny_qwen, "ovis2": tiny_ovis}[family]
    stock = figures(model, digits.train, tmp_path / "stock", STOCK, **RUNS[run])
    ours = figures(model, digits.train, tmp_path / "ours", **RUNS[run])
    assert stock.keys() == ours.keys()
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
    assert any(value > 1e-4 for value in stock["grad_norm"])


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"loss_type": "dapo"},
        pytest.param(LORA, marks=pytest.mark.slow),
    ],
    ids=["grpo", "dapo", "lora"],
)
def test_micro_batches_of_groups_change_nothing_but_their_size(tiny_qwen, overrides, digits, tmp_path):
    """Batch 1 x accumulation is what people run; nothing could be shared there."""
    overrides = {**GROUPS, **overrides}
    single = figures(tiny_qwen, digits.train, tmp_path / "single", STOCK, **overrides)
    grouped = figures(tiny_qwen, digits.train, tmp_path / "grouped", **overrides)
    for name in single:
        assert grouped[name] == pytest.approx(single[name], abs=2e-6, rel=2e-5), name
    assert len(grouped["loss"]) == 2


@pytest.mark.slow
def test_a_family_nobody_knows_keeps_its_images(tiny_qwen, digits, tmp_path, monkeypatch):
    """Its rows cannot be shared, but the log-probs are still taken in chunks, of prompts with their images."""
    for room in (features, passes):
        monkeypatch.setattr(room, "family_of", lambda config: None)
    overrides = {"per_device_train_batch_size": 8}
    stock = figures(tiny_qwen, digits.train, tmp_path / "stock", STOCK, **overrides)
    with told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path / "ours", **overrides)
    assert any("shared_prefix off (nothing is known about" in message for message in messages)
    assert not any("self-check failed" in message for message in messages)
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
