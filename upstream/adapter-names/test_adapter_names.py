"""PEFT loads every weight of an adapter that was trained with Megatron."""

import pytest
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from tests.megatron.runs import Order, train_all
from tests.megatron.table import LORA

# Of the tower, too.
WHOLE = {**LORA, "freeze_vit": False, "freeze_aligner": False, "train_iters": 1}


@pytest.mark.timeout(280)
def test_no_weight_is_lost(python, tiny, four_rows, tmp_path):
    families = ("qwen2_5_vl", "internvl")
    orders = [Order(tiny(name), four_rows, tmp_path / name, WHOLE) for name in families]
    lost = []
    for name, run in zip(families, train_all(python, orders), strict=True):
        adapter = run.folder / "checkpoint-1"
        base = AutoModelForImageTextToText.from_pretrained(tiny(name))
        own = dict(PeftModel.from_pretrained(base, adapter).named_parameters())
        weights = load_file(adapter / "adapter_model.safetensors")
        for key, weight in weights.items():
            place = key.replace(".weight", ".default.weight")
            if place not in own or not own[place].equal(weight):
                lost.append(key)
    assert lost == []
