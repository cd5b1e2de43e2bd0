"""M9: what mcore-bridge calls the weights of an adapter that it saves is what PEFT looks for."""

import warnings

import pytest
from mcore_bridge.bridge.gpt_bridge import GPTBridge
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForImageTextToText

from swift_grpo_ext import testing
from swift_grpo_ext.compat import adapter_names, registry
from swift_grpo_ext.compat.patch import State, Target
from swift_grpo_ext.versions import installed_version
from tests.compat.reverting import restore

PREFIX = "base_model.model."
LAYERS = ["q_proj", "v_proj", "down_proj", "qkv", "fc1"]  # of language models and towers


def bridge_of(family, **state):
    """The bridge of a family, of which no model is built."""
    from mcore_bridge.model.register import MODEL_MAPPING

    made = MODEL_MAPPING[family].bridge_cls.__new__(MODEL_MAPPING[family].bridge_cls)
    vars(made).update({"_is_saving": True, "_peft_format": True, **state})
    return made


@pytest.fixture
def fixed():
    """The patch is on, and afterwards off."""
    target = Target(adapter_names.TARGET)
    before = target.get()
    outcome = registry.apply(adapter_names.fix)
    assert outcome.state is State.APPLIED, outcome.reason
    yield
    restore(outcome.target)
    assert target.get() is before


@pytest.mark.parametrize(
    ("family", "without_fix"),
    [("qwen2_5_vl", 0), ("qwen2_vl", 0), ("internvl", 1), ("qwen3_vl", 2), ("qwen3_5", 2)],
)
def test_peft_loads_what_is_saved(family, without_fix, fixed, tmp_path):
    """Without the fix no weight, those of the language model alone, or (of others) all."""
    base = testing.tiny_checkpoint(family, tmp_path / "base")
    load = AutoModelForImageTextToText.from_pretrained
    model = get_peft_model(load(base), LoraConfig(r=2, target_modules=LAYERS))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            nn.init.constant_(parameter, 1)
    model.save_pretrained(tmp_path / "adapter")
    file = tmp_path / "adapter/adapter_model.safetensors"
    weights = load_file(file)
    assert any("visual" in name or "vision" in name for name in weights)
    plain = {name.removeprefix(PREFIX): weight for name, weight in weights.items()}

    def reached(convert):
        """How many of the weights a model has that loads them by the bridge's names."""
        saved = convert(bridge_of(family), plain, False)
        save_file({PREFIX + name: weight for name, weight in saved.items()}, file)
        with warnings.catch_warnings(action="ignore"):
            loaded = PeftModel.from_pretrained(load(base), tmp_path / "adapter")
        return sum(bool((p == 1).all()) for name, p in loaded.named_parameters() if "lora_" in name)

    language = sum("language_model" in name for name in weights)
    assert reached(GPTBridge._convert_hf_state_dict) == len(weights)
    stock = GPTBridge._convert_hf_state_dict.__wrapped__
    if family == "internvl" and installed_version("mcore-bridge") == "1.6.0":
        without_fix = 2
    assert reached(stock) == [0, language, len(weights)][without_fix]


def test_all_else_keeps_the_names_of_the_checkpoint(fixed):
    """Whole checkpoints, weights on their way to vLLM, and what is loaded by either name."""
    new, old = "model.language_model.layers.0.w", "model.layers.0.w"
    for state in ({"_is_saving": False}, {"_peft_format": False}):
        assert list(bridge_of("qwen2_5_vl", **state)._convert_hf_state_dict({new: 0}, False)) == [old]
    for name in (new, old):
        bridge = bridge_of("qwen2_5_vl", _is_saving=False)
        assert list(bridge._convert_hf_state_dict({name: 0}, True)) == [new]
