"""Two ranks: the figures are those of the stock passes, and nobody waits for a tower call that never comes."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.families import TINY
from tests.conftest import built_once
from tests.forked import run_ranks
from tests.precision import double_copy
from tests.trainer.runs import CHANGING_FEATURES, FIGURES, REWARD, STOCK, gains, mixed_rows

GLOO = Path(__file__).parents[1] / "e2e" / "gloo_for_zero3.py"
DOUBLE = Path(__file__).parents[1] / "double.py"
SLOW = pytest.mark.slow
# Rank 0 and 1 then hold other numbers of new images in their micro-batches: some have none to encode.
UNEVEN = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "num_generations": 4}
LORA = {"tuner_type": "lora", "lora_dropout": 0, "target_modules": "all-linear"}
# The first rank holds a group and half of the second one, and the other the rest.
STRADDLING = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 6, "num_generations": 4}
# Adam turns the rounding of a gradient that is zero into a whole step, so SGD.
SAVED = {"max_steps": 3, "save_strategy": "steps", "save_steps": 3, "optim": "sgd", "learning_rate": 0.5}
# A group of four completions of eight tokens: under ZeRO-3 both groups would be one micro-batch else.
A_GROUP = Path(__file__).with_name("little_memory.py")
WAYS = {
    "ddp": (None, {}, ()),
    "ddp-straddling": (None, STRADDLING, ()),
    "zero2-cut": ("zero2", UNEVEN, ()),
    "ddp-lora": (None, LORA, ()),
    "zero2": ("zero2", {}, ()),
    "zero2-lora": ("zero2", LORA, ()),
    "zero3": ("zero3", UNEVEN, (A_GROUP,)),
    "zero3-lora": ("zero3", {**UNEVEN, **LORA}, (A_GROUP,)),
    "zero3-one-pack": ("zero3", UNEVEN, ()),
    "zero3-gathers-less": ("zero3", {**UNEVEN, "per_device_train_batch_size": 4}, ()),
}
TUNED = ("qwen3_5", "qwen3_vl", "internvl")  # LoRA, too: hybrid layers, deepstack, tiles
# ms-swift itself cannot load Qwen3-VL-MoE there.
DERIVED = tuple(name for name in TINY if name not in ("qwen2_5_vl", "ovis2", "qwen3_vl_moe"))
BY_SLICE = ("minicpmv4_6",)  # its tower calls layers once for each slice: ranks would part
RECUT = {
    "ddp-straddling": "6 x 1 completions instead of 1 x 6",
    "zero2-cut": "4 x 2 completions instead of 2 x 4",
    "zero3": "4 x 2 completions instead of 2 x 4",
    "zero3-lora": "4 x 2 completions instead of 2 x 4",
    "zero3-one-pack": "so that prompts are shared: 8 x 1 completions instead of 2 x 4",
    "zero3-gathers-less": "so that weights are gathered less often: 16 x 1 completions instead of 4 x 4",
}
RUNS = [
    *(("qwen2_5_vl", way) for way in WAYS),
    *(("ovis2", way) for way in WAYS),
    *((family, "zero3") for family in DERIVED),
    *((family, "zero3-lora") for family in TUNED),
]


def figures(model, dataset, output, deepspeed, overrides, switches, plugins=()):
    """What two ranks logged, by name, and what they said; without DeepSpeed in double precision."""
    arguments = testing.grpo_arguments(
        model if deepspeed else double_copy(model),
        dataset,
        output,
        **{"reward_funcs": "even_characters", "deepspeed": deepspeed, **overrides},
        external_plugins=[GLOO if deepspeed else DOUBLE, REWARD, *plugins, plugin_file()],
    )
    variables = {f"SWIFT_GRPO_EXT_{name}": value for name, value in switches.items()}
    result = run_ranks("rlhf", arguments, env=variables, timeout=500)
    rows = [row for row in testing.read_logging(output) if "loss" in row]
    return {name: [row[name] for row in rows if name in row] for name in FIGURES}, result.tail


@pytest.mark.timeout(1100)
@pytest.mark.two_ranks
@pytest.mark.parametrize(
    ("family", "way"),
    [pytest.param(*run, marks=() if run == ("qwen2_5_vl", "zero3") else SLOW) for run in RUNS],
)
def test_equals_the_stock_passes(family, way, shared_folder, digits, tmp_path):
    """Loss, gradients and parameters after three steps, in the user's cut and in the one that holds groups."""
    model = built_once(
        shared_folder / f"tiny_{family}", lambda folder: testing.tiny_checkpoint(family, folder)
    )
    seeing = bool(TINY[family].vision)
    data = digits.train if seeing else mixed_rows(digits, shared_folder / "mixed_0.jsonl", 0)
    deepspeed, overrides, plugins = WAYS[way]
    overrides = {**overrides, **SAVED}
    stock, _ = figures(model, data, tmp_path / "stock", deepspeed, overrides, STOCK)
    ours, tail = figures(model, data, tmp_path / "ours", deepspeed, overrides, {}, plugins)
    shared = family not in BY_SLICE or deepspeed != "zero3"
    assert gains(tmp_path / "ours")["shared_prefix"]["state"] == ("on" if shared else "off")
    if shared and seeing and family not in CHANGING_FEATURES:
        assert "shared_prefix on, vision_once on, skip_old_logps on, chunked_logps on" in tail
    if shared:
        assert RECUT.get(way, "") in tail
    assert len(stock["grad_norm"]) == 3
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
    theirs, own = weights(tmp_path / "stock"), weights(tmp_path / "ours")
    apart = {name: float((own[name] - theirs[name]).abs().max()) for name in theirs}
    assert max(apart.values()) < 5e-6, max(apart, key=apart.get)


def weights(output):
    """Of the last checkpoint; LoRA's too."""
    (path,) = output.rglob("checkpoint-*/*model.safetensors")
    return load_file(path)


@pytest.mark.timeout(1100)
@pytest.mark.two_ranks
def test_a_rank_that_raises_alone_takes_the_other_back_with_it(tiny_qwen, digits, tmp_path):
    stock, _ = figures(tiny_qwen, digits.train, tmp_path / "stock", None, {}, STOCK)
    plugins = [Path(__file__).with_name("raising_rank.py")]
    ours, tail = figures(tiny_qwen, digits.train, tmp_path / "ours", None, {}, {}, plugins)
    assert "shared_prefix off (self-check failed)" in tail
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name


@pytest.mark.slow
@pytest.mark.timeout(1100)
@pytest.mark.two_ranks
def test_a_tower_that_encodes_one_by_one_is_found_out_by_both(shared_folder, digits, tmp_path):
    """Left alone, the run ends with "pop from an empty deque"."""
    model = built_once(
        shared_folder / "tiny_minicpmv4_6", lambda folder: testing.tiny_checkpoint("minicpmv4_6", folder)
    )
    stock, _ = figures(model, digits.train, tmp_path / "stock", "zero3", UNEVEN, STOCK)
    plugins = [Path(__file__).with_name("undescribed.py"), A_GROUP]
    ours, tail = figures(model, digits.train, tmp_path / "ours", "zero3", UNEVEN, {}, plugins)
    assert "self-check failed: the vision tower calls layers once for each image" in tail
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name


@pytest.mark.slow
@pytest.mark.timeout(1100)
@pytest.mark.two_ranks
def test_memory_that_runs_out_on_one_rank_halves_the_cut_of_both(tiny_qwen, digits, tmp_path):
    overrides = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "num_generations": 4}
    stock, _ = figures(tiny_qwen, digits.train, tmp_path / "stock", None, overrides, STOCK)
    plugins = [Path(__file__).with_name("small_rank.py")]
    ours, tail = figures(tiny_qwen, digits.train, tmp_path / "ours", None, overrides, {}, plugins)
    assert "4 x 2 completions instead of" in tail
    assert "each micro-batch of 4 is now split into 2 parts" in tail
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name


@pytest.mark.timeout(1100)
@pytest.mark.two_ranks
@pytest.mark.slow
@pytest.mark.parametrize("deepspeed", [None, "zero3"])
def test_groups_that_are_silent_on_one_rank(deepspeed, tiny_qwen, digits, tmp_path):
    here = Path(__file__)
    overrides = {"reward_funcs": "silent", "beta": 0, "per_device_train_batch_size": 4, "num_generations": 4}
    plugins = [here.with_name("equal_reward.py")]
    stock, _ = figures(tiny_qwen, digits.train, tmp_path / "s", deepspeed, overrides, STOCK, plugins)
    ours, _ = figures(tiny_qwen, digits.train, tmp_path / "o", deepspeed, overrides, {}, plugins)
    assert gains(tmp_path / "o")["skip_zero_advantage"]["state"] == "on"
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
