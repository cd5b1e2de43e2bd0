"""LoRA of Megatron: from one adapter against transformers, and on two ranks against one."""

from collections import Counter

import pytest
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from tests.megatron.comparing import (
    GRADIENT,
    LOG_PROBS,
    assert_equal,
    gradient_differences,
    log_prob_difference,
)
from tests.megatron.runs import FIXES, Order, train_all, train_megatron, train_transformers
from tests.megatron.table import LORA, OURS, TENSOR
from tests.megatron.test_faults import both, shows
from tests.megatron.test_trainer import shares

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def fresh(python, tiny, four_rows, tmp_path_factory):
    """A run on one rank that begins with a new adapter, and saves it by names that PEFT knows."""
    folder = tmp_path_factory.mktemp("fresh")
    return train_megatron(python, tiny("qwen2_5_vl"), four_rows, folder, **LORA, **FIXES)


# Megatron's fused layers have one first factor where transformers have two or three; this one is the same in both.
ATTENTION = {**LORA, "target_modules": "linear_proj"}
FUSED = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}


def by_both(python, model, rows, folder, **arguments):
    """From one adapter: ms-swift's Megatron trainer and ours, and the transformers trainer."""
    orders = [
        Order(model, rows, folder / "stock", arguments),
        Order(model, rows, folder / "ours", {**arguments, "external_plugins": [OURS]}),
    ]
    arguments = {**arguments, "target_modules": None}
    return *train_all(python, orders), train_transformers(model, rows, folder / "transformers", **arguments)


# Adapters of language model, aligner and tower.
WHOLE = {**LORA, "freeze_vit": False, "freeze_aligner": False, "train_iters": 1}
# InternVL comes last: for it ms-swift replaces a method of all models in the process, with which the towers of Qwen3-VL and
# Qwen3.5 cannot be checkpointed (NotImplementedError: get_input_embeddings).
FAMILIES = ("qwen2_5_vl", "qwen2_vl", "qwen3_vl", "qwen3_5", "internvl")


@pytest.fixture(scope="module")
def adapters(python, tiny, four_rows, tmp_path_factory):
    """Of each family what a run of ms-swift's own trainer saves, with our fixes."""
    folder = tmp_path_factory.mktemp("adapters")
    orders = [Order(tiny(name), four_rows, folder / name, {**WHOLE, **FIXES}) for name in FAMILIES]
    runs = train_all(python, orders)
    return {name: run.folder / "checkpoint-1" for name, run in zip(FAMILIES, runs, strict=True)}


@pytest.mark.parametrize("family", FAMILIES)
def test_m9_peft_loads_every_weight_that_is_saved(family, adapters, tiny):
    base = AutoModelForImageTextToText.from_pretrained(tiny(family))
    loaded = dict(PeftModel.from_pretrained(base, adapters[family]).named_parameters())
    saved = load_file(adapters[family] / "adapter_model.safetensors")
    own = Counter()
    for name, weight in saved.items():
        place = name.replace(".lora_A.", ".lora_A.default.").replace(".lora_B.", ".lora_B.default.")
        assert loaded[place].equal(weight), name
        own[name.split(".")[3]] += 1
    assert own["language_model"]
    assert len(own) > 1, "an adapter without the tower"


def test_a_layer_that_both_have_trains_as_with_transformers(python, tiny, four_rows, tmp_path):
    model = tiny("qwen2_5_vl")
    fresh = train_megatron(python, model, four_rows, tmp_path / "fresh", **ATTENTION, **FIXES)
    again = {**ATTENTION, "adapters": fresh.folder / "checkpoint-3"}
    stock, ours, other = by_both(python, model, four_rows, tmp_path, **again)
    assert {name.split(".")[3] for name in other.gradients[0]} == {"o_proj"}
    assert_equal(stock, other)
    assert_equal(ours, other)
    assert shares(ours)


def test_fused_layers_begin_as_with_transformers(fresh, python, tiny, four_rows, tmp_path):
    """The gradient of a fused first factor is the sum of those of transformers' factors."""
    again = {**LORA, "adapters": fresh.folder / "checkpoint-3"}
    stock, ours, other = by_both(python, tiny("qwen2_5_vl"), four_rows, tmp_path, **again)
    assert shares(ours)
    for run in (stock, ours):
        assert log_prob_difference(run.samples[0], other.samples[0]) <= LOG_PROBS
        assert abs(run.logs[0]["loss"] - other.logs[0]["loss"]) <= 1e-6
        apart = gradient_differences(fused(run.gradients[0], copies=True), fused(other.gradients[0]))
        assert max(apart.values()) <= GRADIENT


def fused(gradients, copies=False):
    """First factors of layers that Megatron fuses as one: their sum, or any of its copies."""
    made = {}
    for name, gradient in gradients.items():
        layer = name.split(".")[3]
        if ".lora_A." in name and layer in FUSED:
            name = name.replace(layer, FUSED[layer])
            if name in made:
                gradient = gradient if copies else made[name] + gradient
        made[name] = gradient
    return made


def test_the_first_log_probs_are_those_of_transformers(fresh, tiny, four_rows, tmp_path):
    """An adapter begins as nothing, with other random numbers in each engine: later steps differ."""
    other = train_transformers(tiny("qwen2_5_vl"), four_rows, tmp_path, **LORA)
    assert fresh.mode["frozen"] > fresh.mode["trainable"] > 0
    assert log_prob_difference(fresh.samples[0], other.samples[0]) <= LOG_PROBS


def test_m4_the_norm_on_two_ranks(fresh, python, tiny, four_rows, tmp_path):
    """From the adapter that the first run saved."""
    again = {**LORA, "adapters": fresh.folder / "checkpoint-3"}
    one = train_megatron(python, tiny("qwen2_5_vl"), four_rows, tmp_path / "one", **again)
    stock, fixed = both(python, tiny("qwen2_5_vl"), four_rows, tmp_path, **again, **TENSOR)
    assert_equal(fixed, one)
    if shows(python, "M4"):
        assert stock.logs[0]["grad_norm"] > 1.01 * one.logs[0]["grad_norm"]
    else:
        assert_equal(stock, one)


def test_the_reference_of_lora_llm_has_the_tower_of_the_start(python, tiny, four_rows, tmp_path):
    """ms-swift's has that of the policy, so that the kl leaves out how far the tower has gone."""
    options = {**LORA, "tuner_type": "lora_llm", "merge_lora": True, "no_save_optim": True, "lr": 1e-2}
    options |= {"train_iters": 3, "beta": 0.04}
    orders = [
        Order(tiny("qwen2_5_vl"), four_rows, tmp_path / "stock", options),
        Order(tiny("qwen2_5_vl"), four_rows, tmp_path / "ours", {**options, "external_plugins": [OURS]}),
    ]
    stock, ours = ([log["kl"] for log in run.logs] for run in train_all(python, orders))
    assert ours[0] == pytest.approx(0, abs=1e-6)
    assert ours[1] > 1e-5
    assert ours[1] != pytest.approx(stock[1], rel=1e-2)
