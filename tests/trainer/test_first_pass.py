"""The self-check in a real run: a wrong attention is found out, told, and the run goes the stock way."""

import pytest
import torch
from torch import nn

from swift_grpo_ext import testing
from swift_grpo_ext.group.attention import BACKENDS, sdpa
from swift_grpo_ext.group.self_check import EXACT, forward_dtype, limits, mismatch, without_dropout
from swift_grpo_ext.group.vision_once import VisionOnce
from swift_grpo_ext.trainer import passes, stock_rows
from tests.conftest import built_once
from tests.trainer.runs import STOCK, gains, told
from tests.trainer.runs import figures_in_double as figures

try:
    from transformers.integrations.neftune import neftune_post_forward_hook
except ImportError:  # transformers 4
    from transformers.trainer_utils import neftune_post_forward_hook


def without_the_prompt(query, key, value, layout, scale, reach):
    """A wrong attention: completions look at themselves and not at their prompt."""
    out = sdpa(query, key, value, layout, scale, reach).clone()
    for node in layout.nodes:
        if node.parent >= 0:
            out[:, :, node.start : node.stop] *= 0.5
    return out


@pytest.mark.parametrize("model", ["tiny_qwen", "tiny_ovis"])
def test_a_wrong_attention_is_found_out_and_left(model, digits, tmp_path, monkeypatch, request):
    model = request.getfixturevalue(model)
    stock = figures(model, digits.train, tmp_path / "stock", STOCK)
    monkeypatch.setitem(BACKENDS, "sdpa", without_the_prompt)
    with told() as messages:
        ours = figures(model, digits.train, tmp_path / "ours")
    assert len([text for text in messages if "self-check failed: log-probs differ" in text]) == 1
    assert any("shared_prefix off (self-check failed)" in text for text in messages)
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name


@pytest.mark.slow
@pytest.mark.parametrize(("family", "parted"), [("minicpmv4_6", True), ("ovis2", False)])
def test_a_tower_that_encodes_one_by_one_where_ranks_wait_for_each_call(
    family, parted, shared_folder, digits, tmp_path, monkeypatch
):
    """MiniCPM-V's merger runs for each slice. Ovis2's table has two calls, however many images there are."""
    monkeypatch.setattr(passes, "gathers_parameters", lambda host: True)
    model = built_once(
        shared_folder / f"tiny_{family}", lambda folder: testing.tiny_checkpoint(family, folder)
    )
    with told() as messages:
        figures(model, digits.train, tmp_path)
    said = "\n".join(messages)
    assert ("self-check failed: the vision tower calls layers once for each image" in said) is parted
    assert ("shared_prefix off (self-check failed)" in said) is parted


def raising(*args):
    raise TypeError("'dict' object has no attribute 'ndim'\nand more")


def raising_with_gradients(*args):
    if torch.is_grad_enabled():
        raise RuntimeError("a first pass of another kind")
    return sdpa(*args)


@pytest.mark.parametrize(
    ("attention", "said"),
    [
        (raising, "TypeError: 'dict' object has no attribute 'ndim'"),
        pytest.param(raising_with_gradients, "another kind", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("beta", [pytest.param(0, marks=pytest.mark.slow), 0.04])
def test_a_first_pass_that_raises_is_a_mismatch(
    tiny_qwen, digits, tmp_path, monkeypatch, attention, said, beta
):
    stock = figures(tiny_qwen, digits.train, tmp_path / "stock", STOCK, beta=beta)
    monkeypatch.setitem(BACKENDS, "sdpa", attention)
    with told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path / "ours", beta=beta)
    (line,) = [text for text in messages if "self-check failed: " in text]
    assert said in line
    assert "\n" not in line
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name


def test_what_is_wrong_is_turned_off_alone(tiny_qwen, digits, tmp_path, monkeypatch):
    """A wrong attention of packs says nothing of the images, nor of the output layer."""
    monkeypatch.setitem(BACKENDS, "sdpa", without_the_prompt)
    figures(tiny_qwen, digits.train, tmp_path / "attention")
    on = gains(tmp_path / "attention")
    assert {name for name, gain in on.items() if gain["why"] == "self-check failed"} == {"shared_prefix"}
    assert on["vision_once"]["state"] == on["chunked_logps"]["state"] == "on"


def test_wrong_features_of_images_leave_prompts_shared(tiny_qwen, digits, tmp_path, monkeypatch):
    right = VisionOnce._encode_missing

    def zeros(once, tower, wanted):
        return {key: 0 * features for key, features in right(once, tower, wanted).items()}

    monkeypatch.setattr(VisionOnce, "_encode_missing", zeros)
    figures(tiny_qwen, digits.train, tmp_path)
    on = gains(tmp_path)
    assert {name for name, gain in on.items() if gain["why"] == "self-check failed"} == {"vision_once"}
    assert on["shared_prefix"]["state"] == on["chunked_logps"]["state"] == "on"


def test_after_one_odd_micro_batch_the_next_is_tried(tiny_qwen, digits, tmp_path, monkeypatch):
    stock = figures(tiny_qwen, digits.train, tmp_path / "stock", STOCK)
    calls = []

    def raising_once(*args):
        calls.append(args)
        if len(calls) == 1:
            raise IndexError("an odd micro-batch")
        return sdpa(*args)

    monkeypatch.setitem(BACKENDS, "sdpa", raising_once)
    with told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path / "ours")
    (line,) = [text for text in messages if "an odd micro-batch" in text]
    assert "the first pass raised (IndexError: an odd micro-batch)" in line
    assert not any("self-check failed" in text for text in messages)
    assert gains(tmp_path / "ours")["shared_prefix"]["state"] == "on"
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name


def test_each_model_is_checked_at_its_own_first_pass(tiny_qwen, digits, tmp_path, monkeypatch):
    """In full training with a reference the old pass is left out, so the policy's is not the first."""
    stock = figures(tiny_qwen, digits.train, tmp_path / "stock", STOCK)
    seen = []
    compared = stock_rows.compare

    def recording(models, *rest):
        seen.extend(models)
        return compared(models, *rest)

    monkeypatch.setattr(stock_rows, "compare", recording)
    figures(tiny_qwen, digits.train, tmp_path / "ours")
    assert len(seen) == len({id(model) for model in seen}) == 2

    def wrong_for_the_second(*args):
        return sdpa(*args) if len(seen) < 4 else without_the_prompt(*args)

    monkeypatch.setitem(BACKENDS, "sdpa", wrong_for_the_second)
    with told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path / "wrong")
    assert any("self-check failed" in text for text in messages)
    assert ours["grad_norm"] == pytest.approx(stock["grad_norm"], abs=2e-6, rel=2e-5)


@pytest.mark.parametrize(
    ("weights", "mixed", "expected"),
    [
        (torch.float32, "no", torch.float32),
        (torch.float32, "bf16", torch.bfloat16),
        (torch.bfloat16, "fp16", torch.bfloat16),
        (torch.float16, "no", torch.float16),
    ],
)
def test_the_coarser_of_weights_and_mixed_precision_counts(weights, mixed, expected):
    assert forward_dtype(weights, mixed) == expected


def test_nobody_looks_where_it_is_switched_off(tiny_qwen, digits, tmp_path, monkeypatch):
    monkeypatch.setitem(BACKENDS, "sdpa", without_the_prompt)
    with told() as messages:
        figures(tiny_qwen, digits.train, tmp_path, {"DISABLE": "trainer.self_check"})
    assert not any("self-check" in text for text in messages)


def test_a_right_attention_passes(tiny_qwen, digits, tmp_path):
    with told() as messages:
        figures(tiny_qwen, digits.train, tmp_path)
    assert not any("self-check" in text for text in messages)


NOISES = {
    "NEFTune": ({"neftune_noise_alpha": 5.0}, {}, "NEFTune adds noise to each row"),
    "functional dropout": ({}, {"attention_dropout": 0.3}, "attention_dropout 0.3"),
    "LoRA dropout": (
        {"tuner_type": "lora", "lora_dropout": 0.3, "init_weights": "false"},
        {},
        "dropout 0.3 in ",
    ),
}


@pytest.mark.parametrize("noise", sorted(NOISES))
def test_a_noisy_model_passes_and_keeps_the_rest(noise, shared_folder, digits, tmp_path):
    overrides, text, why = NOISES[noise]
    name = f"tiny_qwen_{'_'.join(text) or 'plain'}"
    model = built_once(shared_folder / name, lambda folder: testing.tiny_qwen2_5_vl(folder, **text))
    with told() as messages:
        figures(model, digits.train, tmp_path, **overrides)
    assert not any("self-check" in message for message in messages)
    on = gains(tmp_path)
    assert on["shared_prefix"]["why"].startswith(why)
    assert on["chunked_logps"]["state"] == on["vision_once"]["state"] == "on"


def test_noise_is_lifted_while_two_passes_are_compared():
    model = nn.Sequential(nn.Embedding(8, 8), nn.Dropout(0.5), nn.RReLU(), nn.Linear(8, 8).eval())
    model[0].neftune_noise_alpha = 5.0
    model[0].register_forward_hook(neftune_post_forward_hook)
    model[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    ids = torch.arange(8)[None]
    with without_dropout(model):
        first, second = model(ids), model(ids)
    assert torch.equal(first, second)
    assert torch.equal(first, model[3](torch.nn.functional.rrelu(2 * model[0].weight[None])))
    assert [module.training for module in model] == [True, True, True, False]
    assert not torch.equal(model(ids), model(ids))


@pytest.mark.parametrize("allowed", [EXACT, (0.1, 2.0)])
def test_differences_beyond_what_is_allowed(allowed):
    mean = allowed[0]
    logps, mask = torch.zeros(2, 4), torch.ones(2, 4)
    assert mismatch(logps, logps + 0.9 * mean, mask, allowed) == ""
    assert f"differ from the stock path's by {1.1 * mean:.2g} on" in mismatch(
        logps, logps + 1.1 * mean, mask, allowed
    )
    nan = torch.full_like(logps, torch.nan)
    assert mismatch(nan, logps, mask, allowed)
    assert mismatch(logps, nan, mask, allowed) == "", "what stock cannot compute is no measure"
    assert mismatch(logps, logps + 10, torch.zeros_like(mask), allowed) == ""


def test_limits_are_the_spread_of_stock_between_layouts():
    alone, mask = torch.full((2, 4), -1e-3), torch.ones(2, 4)
    paired = alone + torch.tensor([[0.1, 0, 0, 0], [0, 0, 0, 0.3]])
    assert limits(alone, paired, mask, torch.bfloat16) == pytest.approx((4 * 0.05, 8 * 0.3))
    paired[1, 3] = torch.nan  # what stock cannot compute is no measure
    assert limits(alone, paired, mask, torch.bfloat16) == pytest.approx((4 * 0.1 / 7, 8 * 0.1))
    assert limits(alone, paired, mask * 0, torch.bfloat16) == EXACT
    assert limits(alone, paired, mask, torch.float32) == EXACT


def test_where_stock_has_no_spread_one_rounding_is_the_limit():
    alone, mask = torch.tensor([[-4.0, -2.0]]), torch.ones(1, 2)
    eps = torch.finfo(torch.bfloat16).eps
    assert limits(alone, alone, mask, torch.bfloat16) == pytest.approx((4 * 3 * eps, 8 * 4 * eps))
    assert limits(alone * 0, alone * 0, mask, torch.float16) == EXACT
