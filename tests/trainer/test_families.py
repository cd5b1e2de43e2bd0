"""Every family that a tiny checkpoint can be made of trains as without us, with a prompt and an image once."""

import math
from pathlib import Path

import pytest
import torch
import transformers
from transformers import GenerationMixin

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.families import TINY
from tests.conftest import built_once
from tests.precision import in_float64
from tests.trainer.placeholder_model import sample_placeholders, unguarded
from tests.trainer.runs import (
    CHANGING_FEATURES,
    REWARD,
    STOCK,
    figures,
    first_gradients,
    gains,
    mixed_rows,
    told,
)

SLOW = pytest.mark.slow
IN_THE_GATE = ("qwen3_5", "qwen3_vl", "internvl", "gemma3", "minicpmv4_6", "mistral3", "deepseek_v3")
PLACEHOLDERS = Path(__file__).with_name("placeholder_plugin.py")
# Four prompts a step, so that the first gradient is of rows with no image to three.
MIXED = {
    "per_device_train_batch_size": 16,
    "dataset_shuffle": False,
    "train_dataloader_shuffle": False,
}
# The same rows in other micro-batches, padded on the other side: what the order of sums alone does to a gradient.
LAYOUTS = (
    {"padding_side": "left"},
    {"padding_side": "left", "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2},
    {"padding_side": "left", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
    {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 16},
)
# Both matrices of each adapter are random: with B at zero A would have no gradient.
TUNERS = {"full": {}, "lora": {"tuner_type": "lora", "lora_dropout": 0.0, "init_weights": "false"}}
BF16 = {"torch_dtype": "bfloat16", "bf16": True}
# What ms-swift itself cannot do: LLaVA-OneVision's collator has no room for rows of several images.
MOST_IMAGES = {"llava_onevision": 1}


@pytest.fixture(autouse=True)
def _tempted(monkeypatch):
    monkeypatch.setattr(GenerationMixin, "generate", sample_placeholders)


def families(gate, chosen=TINY):
    return [pytest.param(name, marks=() if name in gate else SLOW) for name in sorted(chosen)]


HYBRID = [name for name in TINY if "layer_types" in TINY[name].text]
SEEING = [name for name in TINY if TINY[name].vision]
WAYS = [
    pytest.param(
        name,
        tuner,
        checkpointing,
        id=f"{name}-{tuner}-{'checkpointing' if checkpointing else 'plain'}",
        marks=() if name in IN_THE_GATE and tuner == "full" and checkpointing else SLOW,
    )
    for name in sorted(TINY)
    for tuner in TUNERS
    for checkpointing in (True, False)
]


@pytest.fixture
def family(request, shared_folder, digits):
    """Name, checkpoint and data of a family, built once for the session."""
    name = request.param
    model = built_once(shared_folder / f"tiny_{name}", lambda folder: testing.tiny_checkpoint(name, folder))
    most = MOST_IMAGES.get(name, 3) if TINY[name].vision else 0
    return name, model, mixed_rows(digits, shared_folder / f"mixed_{most}.jsonl", most)


STOCK_RUNS = {}


def stock_run(family, tuner, folder, layout=None):
    """Figures and first gradients without us, each once a session: checkpointing changes none of them."""
    name, model, data = family
    if (name, tuner, layout) not in STOCK_RUNS:
        cut = LAYOUTS[layout] if layout is not None else {}
        with first_gradients() as gradients:
            found = figures(
                model, data, folder / f"stock{layout}", STOCK, **{**MIXED, **TUNERS[tuner], **cut}
            )
        STOCK_RUNS[name, tuner, layout] = found, gradients
    return STOCK_RUNS[name, tuner, layout]


def assert_same_gradients(found, expected, spread):
    """Each parameter's to 1e-5 of itself, wherever ms-swift's own layouts are within 2e-6 of each other.

    They are not for gated delta nets, some of whose gradients cancel out to 1e-8 of the whole. There single
    precision leaves ms-swift's up to percents from what double precision gives, and ours about as far in another
    direction (likely because our completions begin at a new chunk of the delta rule). So the limit is twice ms-swift's own distance
    (two draws of one noise), or one rounding of the whole; in double precision all are the same, see below.
    """
    assert len(found) == len(expected) > 0
    apart, norms = distances(found, expected), [float(one.norm()) for one in expected]
    far = [number for number, norm in enumerate(norms) if apart[number] > 1e-5 * norm]
    if far:
        whole, own = torch.tensor(norms).norm(), spread()
        for number in far:
            said = f"parameter {number} of norm {norms[number]:.2e}: {apart[number]:.2e}, in itself {own[number]:.2e}"
            assert own[number] > 2e-6 * norms[number], said
            assert apart[number] <= max(2 * own[number], torch.finfo(torch.float32).eps * whole), said


def distances(found, expected):
    return [float((one - other).norm()) for one, other in zip(found, expected, strict=True)]


def assert_all_is_on(output, messages, images=True):
    states = gains(output)
    for one in ("shared_prefix", "shared_prefill", *(("vision_once",) if images else ())):
        assert states[one]["state"] == "on", states[one]
    given_up = (
        "self-check failed",
        "not packed",
        "computed once for each",
        "placeholder",
        "nothing is any more",
        "the engine returns none",
    )
    assert not [text for text in messages if any(one in text for one in given_up)]


@pytest.mark.parametrize(("family", "tuner", "checkpointing"), WAYS, indirect=["family"])
def test_a_run_equals_that_of_ms_swift(family, tuner, checkpointing, tmp_path):
    name, model, data = family
    stock, expected = stock_run(family, tuner, tmp_path)
    ways = {**MIXED, **TUNERS[tuner], "gradient_checkpointing": checkpointing}
    with told() as messages, first_gradients() as found:
        ours = figures(model, data, tmp_path / "ours", **ways)
    assert stock["loss"]
    assert max(stock["grad_norm"]) > 0
    for figure in stock:
        assert ours[figure] == pytest.approx(stock[figure], abs=2e-6, rel=2e-5), figure
    lengths = [
        (row["completions/min_length"], row["completions/max_length"]) for row in logged(tmp_path / "ours")
    ]
    assert any(shortest < longest for shortest, longest in lengths), lengths

    def spread():
        others = (stock_run(family, tuner, tmp_path, layout)[1] for layout in range(len(LAYOUTS)))
        return [max(every) for every in zip(*(distances(one, expected) for one in others), strict=True)]

    assert_same_gradients(found, expected, spread)
    changing = name in CHANGING_FEATURES and tuner == "full"
    assert_all_is_on(tmp_path / "ours", messages, images=bool(TINY[name].vision) and not changing)


@pytest.mark.parametrize("tuner", ["full", pytest.param("lora", marks=SLOW)])
@pytest.mark.parametrize("family", families(("qwen3_5",), HYBRID), indirect=True)
def test_gradients_in_double_precision_are_those_of_ms_swift(family, tuner, tmp_path):
    """Of every parameter, to 1e-9 of itself: what is further apart in single precision is rounding.

    On transformers 5.16 two gradients that cancel out are 1.3e-9 apart: there one rounding of the whole is let
    pass, nearer than which no sum in double precision is.
    """
    name, _, data = family
    model = testing.tiny_checkpoint(name, tmp_path / "model", dtype="float64")
    gradients = []
    with in_float64():
        for folder, switches in (("stock", STOCK), ("ours", {})):
            with first_gradients() as found:
                figures(model, data, tmp_path / folder, switches, **MIXED, **TUNERS[tuner], max_steps=1)
            gradients.append(found)
    assert gains(tmp_path / "ours")["shared_prefill"]["state"] == "on"
    assert {one.dtype for one in gradients[1]} == {torch.float64}
    apart, norms = distances(*gradients), [float(one.norm()) for one in gradients[0]]
    older = transformers.__version__ < "5.17"
    rounding = torch.finfo(torch.float64).eps * math.hypot(*norms) if older else 0.0
    limits = [max(1e-9 * norm, rounding) for norm in norms]
    far = {
        number: apart[number] / norms[number] for number, limit in enumerate(limits) if apart[number] > limit
    }
    assert not far


def logged(output):
    return [row for row in testing.read_logging(output) if "loss" in row]


@pytest.mark.parametrize("family", families(("qwen3_5",)), indirect=True)
def test_bf16_passes_the_self_check(family, tmp_path):
    name, model, data = family
    with told() as messages:
        found = figures(model, data, tmp_path, **MIXED, **BF16)
    assert found["loss"]
    assert_all_is_on(tmp_path, messages, images=bool(TINY[name].vision) and name not in CHANGING_FEATURES)


@pytest.mark.parametrize("family", families(("qwen3_5",), SEEING), indirect=True)
def test_without_the_guard_the_model_says_placeholders(family, tmp_path, monkeypatch):
    """So the bias of the next test is one that only the guard withstands."""
    _, model, data = family
    monkeypatch.setattr(GenerationMixin, "generate", unguarded)
    figures(model, data, tmp_path, **MIXED, max_steps=1)
    assert [row["completions/with_placeholder"] for row in logged(tmp_path)] == [1]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", families(("minicpmv4_6",)), indirect=True)
def test_the_command_with_a_model_that_prefers_placeholders(family, tmp_path):
    name, model, data = family
    plugins = [PLACEHOLDERS, REWARD, plugin_file()]
    overrides = {**MIXED, "reward_funcs": "even_characters", "external_plugins": plugins}
    result = testing.run_swift("rlhf", testing.grpo_arguments(model, data, tmp_path, **overrides))
    assert gains(tmp_path)["shared_prefix"]["state"] == "on"
    assert "self-check failed" not in result.tail
    assert [row["completions/with_placeholder"] for row in logged(tmp_path)] == [0, 0]
    said = [row["completion"] for row in testing.read_completions(tmp_path)]
    assert any(said)
    tokens = [token for one in TINY[name].ids.values() for token in ((one,) if isinstance(one, str) else one)]
    assert not [text for text in said if any(token in text for token in tokens)]
