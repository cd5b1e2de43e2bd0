"""Every family that a tiny checkpoint can be made of trains as without us, with a prompt and an image once."""

from pathlib import Path

import pytest
import torch
from transformers import GenerationMixin

from swift_grpo_ext import testing
from swift_grpo_ext.models.families import FAMILIES, TINY
from swift_grpo_ext.plugin_files import plugin_file
from tests.trainer.runs import REWARD, STOCK, figures, first_gradients, gains, mixed_rows, told
from tests.trainer.tempted import tempted

IN_THE_GATE = ("qwen3_5", "qwen3_vl", "internvl", "gemma3", "minicpmv4_6", "mistral3", "deepseek_v3")
TEMPTING = Path(__file__).with_name("tempting.py")
MIXED = {
    "per_device_train_batch_size": 8,
    "dataset_shuffle": False,
    "train_dataloader_shuffle": False,
}
LORA = {"tuner_type": "lora", "lora_dropout": 0.0, "gradient_checkpointing": False}
BF16 = {"torch_dtype": "bfloat16", "bf16": True}
# What ms-swift itself cannot do: LLaVA-OneVision's collator has no room for rows of several images.
MOST_IMAGES = {"llava_onevision": 1}


@pytest.fixture(autouse=True)
def _tempted(monkeypatch):
    monkeypatch.setattr(GenerationMixin, "generate", tempted)


def families(gate):
    slow = pytest.mark.slow
    names = sorted({*TINY, *FAMILIES})
    return [pytest.param(name, marks=() if name in gate else slow) for name in names]


@pytest.fixture
def family(request, shared_folder, digits):
    """Name, checkpoint and data of a family, built once for the session."""
    from tests.conftest import built_once

    name = request.param
    vision = name in FAMILIES or bool(TINY[name].vision)
    builders = {"qwen2_5_vl": testing.tiny_qwen2_5_vl, "ovis2": testing.tiny_ovis2}
    build = builders.get(name) or (lambda folder: testing.tiny_checkpoint(name, folder))
    model = built_once(shared_folder / f"tiny_{name}", build)
    most = MOST_IMAGES.get(name, 3) if vision else 0
    return name, model, mixed_rows(digits, shared_folder / f"mixed_{most}.jsonl", most)


def compared(family, folder, **overrides):
    """Figures and first gradients of a run without us and with us, and what ours said."""
    _, model, data = family
    with first_gradients() as expected:
        stock = figures(model, data, folder / "stock", STOCK, **MIXED, **overrides)
    with told() as messages, first_gradients() as found:
        ours = figures(model, data, folder / "ours", **MIXED, **overrides)
    return stock, ours, list(zip(expected, found, strict=True)), messages


def assert_equal(stock, ours, gradients):
    assert stock["loss"]
    assert max(stock["grad_norm"]) > 0
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
    assert gradients
    total = torch.stack([expected.norm() for expected, _ in gradients]).norm()
    for number, (expected, found) in enumerate(gradients):
        # One rounding of the whole is what is left of sums that cancel out, as for decays of delta nets.
        allowed = max(1e-5 * float(expected.norm()), torch.finfo(torch.float32).eps * float(total))
        assert float((found - expected).norm()) <= allowed, f"parameter {number} of shape {expected.shape}"


def assert_all_is_on(name, output, messages, images=True):
    states = gains(output)
    for one in ("shared_prefix", "shared_prefill"):
        assert states[one]["state"] == "on", states[one]
    given_up = ("self-check failed", "went the stock way", "computed once for each", "placeholder")
    assert not [text for text in messages if any(one in text for one in given_up)]
    if images and (name in FAMILIES or TINY[name].vision):
        assert states["vision_once"]["state"] == "on", states["vision_once"]


@pytest.mark.parametrize("family", families(IN_THE_GATE), indirect=True)
def test_full_training_with_checkpointing(family, tmp_path):
    stock, ours, gradients, messages = compared(family, tmp_path)
    assert_equal(stock, ours, gradients)
    # LLaVA's token between the lines of an image trains, so that its features change.
    assert_all_is_on(family[0], tmp_path / "ours", messages, images=family[0] != "llava_onevision")


@pytest.mark.slow
@pytest.mark.parametrize("family", families(()), indirect=True)
def test_lora_without_checkpointing(family, tmp_path):
    stock, ours, gradients, messages = compared(family, tmp_path, **LORA)
    assert_equal(stock, ours, gradients)
    assert_all_is_on(family[0], tmp_path / "ours", messages)


@pytest.mark.parametrize("family", families(("qwen3_5",)), indirect=True)
def test_bf16_passes_the_self_check(family, tmp_path):
    _, model, data = family
    with told() as messages:
        found = figures(model, data, tmp_path, **MIXED, **BF16)
    assert found["loss"]
    assert_all_is_on(family[0], tmp_path, messages, images=family[0] != "llava_onevision")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", families(("minicpmv4_6",)), indirect=True)
def test_the_command_with_a_model_that_prefers_placeholders(family, tmp_path):
    _, model, data = family
    plugins = [TEMPTING, REWARD, plugin_file()]
    overrides = {**MIXED, "reward_funcs": "even_characters", "external_plugins": plugins}
    result = testing.run_swift("rlhf", testing.grpo_arguments(model, data, tmp_path, **overrides))
    assert gains(tmp_path)["shared_prefix"]["state"] == "on"
    assert "self-check failed" not in result.tail
    said = [row["completion"] for row in testing.read_completions(tmp_path)]
    assert said
    assert not [text for text in said if any(mark in text.lower() for mark in ("image", "img", "vision"))]
