"""Rows without padding are packed, too. SDPA by segments stands in for flash attention, which needs a GPU."""

from pathlib import Path

import pytest
from pairs import scripted
from swift.arguments.sft_args import SftArguments

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.trainer import passes, tower
from tests.trainer.runs import STOCK, gains, mixed_rows, told
from tests.trainer.runs import figures_in_double as figures

FLAT = {"padding_free": True, "attn_impl": scripted.SEGMENTS}


@pytest.fixture(autouse=True)
def _flash_attention_is_not_asked_for(monkeypatch):
    monkeypatch.setattr(SftArguments, "_check_padding_free", SftArguments._check_padding_free)
    scripted.allow_segments()


@pytest.mark.parametrize(
    ("overrides", "switches"),
    [
        ({"per_device_train_batch_size": 8, "stop_words": ["e", "a", "<", " "]}, {}),
        pytest.param(
            {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}, {}, marks=pytest.mark.slow
        ),
        ({"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}, {"GROUP_BATCH": "0"}),
    ],
    ids=["groups", "cut by groups", "groups of one"],
)
def test_equals_rows_with_padding_and_without(tiny_qwen, digits, tmp_path, overrides, switches):
    padded = figures(tiny_qwen, digits.train, tmp_path / "padded", STOCK, **overrides)
    stock = figures(tiny_qwen, digits.train, tmp_path / "stock", STOCK, **overrides, **FLAT)
    with told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path / "ours", switches, **overrides, **FLAT)
    said = "\n".join(messages)
    assert "vision_once on, skip_old_logps on, chunked_logps on" in said
    assert "self-check failed" not in said
    assert "not packed" not in said
    for name in stock:
        assert stock[name] == pytest.approx(padded[name], abs=2e-6, rel=2e-5), name
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name


def test_hybrid_layers_take_packs_without_flash_linear_attention(digits, tmp_path):
    """ms-swift's own way needs it, so rows with padding are what ours is held against."""
    model, overrides = (
        testing.tiny_checkpoint("qwen3_5", tmp_path / "model"),
        {"per_device_train_batch_size": 8},
    )
    stock = figures(model, digits.train, tmp_path / "stock", STOCK, **overrides)
    with told() as messages:
        ours = figures(model, digits.train, tmp_path / "ours", **overrides, **FLAT)
    assert not any("self-check failed" in message for message in messages)
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name


def test_where_ranks_wait_for_each_call_of_the_tower(tiny_qwen, digits, tmp_path, monkeypatch):
    """Its calls are counted over one row and over the micro-batch, which cannot be parted into rows of two."""
    monkeypatch.setattr(passes, "gathers_parameters", lambda host: True)
    with told() as messages:
        figures(tiny_qwen, digits.train, tmp_path, per_device_train_batch_size=8, **FLAT)
    said = "\n".join(messages)
    assert "shared_prefix on, vision_once on" in said
    assert "first pass raised" not in said
    assert "self-check failed" not in said


def test_the_made_up_image_of_a_trained_tower_in_rows_of_text(digits, tmp_path, monkeypatch):
    """DDP waits for its gradients, so it runs over an image that is made up: a row without padding, too."""
    model = testing.tiny_checkpoint("qwen3_vl", tmp_path / "model")
    monkeypatch.setattr(tower, "waits_for_gradients", lambda: True)
    rows = mixed_rows(digits, tmp_path / "text.jsonl", 0)
    trained = {"freeze_vit": False, "per_device_train_batch_size": 8, **FLAT}
    with told() as messages:
        figures(model, rows, tmp_path / "run", **trained)
    assert not any("first pass raised" in text or "self-check failed" in text for text in messages)


def test_without_packs_rows_stay_as_they_are(tiny_qwen, digits, tmp_path):
    overrides = {"per_device_train_batch_size": 8, **FLAT}
    stock = figures(tiny_qwen, digits.train, tmp_path / "stock", STOCK, **overrides)
    with told() as messages:
        ours = figures(
            tiny_qwen, digits.train, tmp_path / "ours", {"DISABLE": "trainer.shared_prefix"}, **overrides
        )
    said = "\n".join(messages)
    assert "vision_once on, skip_old_logps on, chunked_logps off" in said
    assert gains(tmp_path / "ours")["chunked_logps"]["why"].startswith("padding_free without shared_prefix")
    assert "self-check failed" not in said
    assert ours["loss"] == pytest.approx(stock["loss"], abs=2e-6, rel=2e-5)


def test_a_micro_batch_without_a_scored_completion(tiny_qwen, digits, tmp_path):
    """It comes first, and proves nothing: the pass is compared with ms-swift's at the next one."""
    plugins = [Path(__file__).with_name("scores_half.py"), plugin_file()]
    overrides = {
        "reward_funcs": "scores_half",
        "external_plugins": plugins,
        "beta": 0,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
    }
    stock = figures(tiny_qwen, digits.train, tmp_path / "stock", STOCK, **overrides, **FLAT)
    with told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path / "ours", **overrides, **FLAT)
    said = "\n".join(messages)
    assert "self-check failed" not in said
    assert "the first pass raised" not in said
    assert gains(tmp_path / "ours")["shared_prefix"]["state"] == "on"
    assert any(value > 1e-4 for value in stock["grad_norm"])
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
