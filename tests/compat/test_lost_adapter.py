"""An adapter of which weights reached nothing is an error, not a warning among thousands of lines."""

import pytest
import swift.tuners.peft  # noqa: F401  (which puts its own `load_adapter` in the place of PEFT's)
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import Qwen2_5_VLForConditionalGeneration

from swift_grpo_ext.compat import lost_adapter
from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.hugging_face.release import FIFTH
from tests.trainer.runs import told


def base(folder):
    return Qwen2_5_VLForConditionalGeneration.from_pretrained(folder)


@pytest.fixture
def adapter(tiny_qwen, tmp_path):
    """An adapter of all of the tiny model's attention."""
    trained = get_peft_model(base(tiny_qwen), LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    trained.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def rename(adapter, old, new):
    """Write the weights whose name has ``old`` by another name; returns how many there are."""
    file = adapter / "adapter_model.safetensors"
    weights = load_file(file)
    save_file({name.replace(old, new): torch.ones_like(weight) for name, weight in weights.items()}, file)
    return sum(old in name for name in weights)


@pytest.mark.skipif(not FIFTH, reason="transformers 4 finds their places: it renames what PEFT loads")
def test_weights_that_reach_nothing_are_an_error(prove, tiny_qwen, adapter):
    """The names that megatron rlhf saves without this package (M9)."""
    number = rename(adapter, ".language_model.layers.", ".layers.")
    proof = prove(lost_adapter.fix)
    before = PeftModel.from_pretrained(base(tiny_qwen), adapter)
    assert not any((weight == 1).all() for name, weight in before.named_parameters() if "lora_" in name)
    proof.drift()
    proof.on()
    with pytest.raises(RefusedError, match=f"no place for {number} weights") as error:
        PeftModel.from_pretrained(base(tiny_qwen), adapter)
    assert error.value.where == str(adapter)
    assert "rename model.layers in adapter_model.safetensors" in error.value.fix
    proof.off()


def test_one_weight_of_many_is_said(prove, tiny_qwen, adapter):
    """A run with the rest goes on, as it does in ms-swift."""
    prove(lost_adapter.fix).on()
    assert rename(adapter, "layers.1.self_attn.v_proj.lora_B", "layers.9.self_attn.v_proj.lora_B") == 1
    with told() as messages:
        PeftModel.from_pretrained(base(tiny_qwen), adapter)
    (line,) = [text for text in messages if text.startswith("swift-grpo-ext")]
    assert "no place for 1 weights of the adapter, such as " in line
    assert "layers.9.self_attn.v_proj.lora_B" in line


def test_a_whole_adapter_is_loaded(prove, tiny_qwen, adapter):
    prove(lost_adapter.fix).on()
    assert rename(adapter, "q_proj", "q_proj")
    loaded = PeftModel.from_pretrained(base(tiny_qwen), adapter)
    assert all((weight == 1).all() for name, weight in loaded.named_parameters() if "lora_" in name)
