"""Every family that a tiny checkpoint can be made of trains as without us, with a prompt and an image once."""

import math
from pathlib import Path

import pytest
import torch
from transformers import GenerationMixin

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.families import TINY
from tests.conftest import built_once
from tests.precision import DOUBLE
from tests.trainer.placeholder_model import sample_placeholders, unguarded
from tests.trainer.runs import (
    CHANGING_FEATURES,
    REWARD,
    STOCK,
    figures,
    figures_in_double,
    first_gradients,
    gains,
    mixed_rows,
    told,
)

SLOW = pytest.mark.slow
IN_THE_GATE = ("qwen3_vl", "internvl")  # the sweep has each family
PLACEHOLDERS = Path(__file__).with_name("placeholder_plugin.py")
# Four prompts a step, so that the first gradient is of rows with no image to three.
MIXED = {
    "per_device_train_batch_size": 16,
    "dataset_shuffle": False,
    "train_dataloader_shuffle": False,
}
# Both matrices of each adapter are random: with B at zero A would have no gradient.
TUNERS = {"full": {}, "lora": {"tuner_type": "lora", "lora_dropout": 0.0, "init_weights": "false"}}
DTYPES = {"fp32": {}, "bf16": {"torch_dtype": "bfloat16", "bf16": True}}
ROUNDED = 2e-8  # ms-swift logs eight decimals
ROUNDINGS = 1  # of the whole gradient, nearer than which no sum in double precision is
# What ms-swift itself cannot do: LLaVA-OneVision's collator has no room for rows of several images.
MOST_IMAGES = {"llava_onevision": 1}


@pytest.fixture(autouse=True)
def _tempted(monkeypatch):
    monkeypatch.setattr(GenerationMixin, "generate", sample_placeholders)


def families(gate, chosen=TINY):
    return [pytest.param(name, marks=() if name in gate else SLOW) for name in sorted(chosen)]


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


def stock_run(family, tuner, folder):
    """Figures and first gradients without us, each once a session: checkpointing changes none of them."""
    name, model, data = family
    if (name, tuner) not in STOCK_RUNS:
        with first_gradients() as gradients:
            found = figures_in_double(model, data, folder / "stock", STOCK, **MIXED, **TUNERS[tuner])
        STOCK_RUNS[name, tuner] = found, gradients
    return STOCK_RUNS[name, tuner]


def assert_same_gradients(found, expected):
    """Each parameter's to 1e-9 of itself, or to roundings of the whole: some cancel out to nothing."""
    assert {one.dtype for one in found} == {torch.float64}
    apart, norms = distances(found, expected), [float(one.norm()) for one in expected]
    rounding = ROUNDINGS * torch.finfo(torch.float64).eps * math.hypot(*norms)
    assert not {
        number: (apart[number], norm)
        for number, norm in enumerate(norms)
        if apart[number] > max(1e-9 * norm, rounding)
    }


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
    )
    assert not [text for text in messages if any(one in text for one in given_up)]


@pytest.mark.parametrize(("family", "tuner", "checkpointing"), WAYS, indirect=["family"])
def test_a_run_equals_that_of_ms_swift(family, tuner, checkpointing, tmp_path):
    name, model, data = family
    stock, expected = stock_run(family, tuner, tmp_path)
    ways = {**MIXED, **TUNERS[tuner], "gradient_checkpointing": checkpointing}
    with told() as messages, first_gradients() as found:
        ours = figures_in_double(model, data, tmp_path / "ours", **ways)
    assert stock["loss"]
    assert max(stock["grad_norm"]) > 0
    for figure in stock:
        assert ours[figure] == pytest.approx(stock[figure], abs=ROUNDED, rel=DOUBLE), figure
    lengths = [
        (row["completions/min_length"], row["completions/max_length"]) for row in logged(tmp_path / "ours")
    ]
    assert any(shortest < longest for shortest, longest in lengths), lengths
    assert_same_gradients(found, expected)
    changing = name in CHANGING_FEATURES and tuner == "full"
    assert_all_is_on(tmp_path / "ours", messages, images=bool(TINY[name].vision) and not changing)


def logged(output):
    return [row for row in testing.read_logging(output) if "loss" in row]


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        pytest.param(name, dtype, marks=() if (name, dtype) == ("qwen3_5", "bf16") else SLOW)
        for name in sorted(TINY)
        for dtype in DTYPES
    ],
    indirect=["family"],
)
def test_rounding_passes_the_self_check(family, dtype, tmp_path):
    name, model, data = family
    with told() as messages:
        found = figures(model, data, tmp_path, **MIXED, **DTYPES[dtype])
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
@pytest.mark.parametrize("family", families(()), indirect=True)
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
