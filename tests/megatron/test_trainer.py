"""Our Megatron trainer: equal to the stock transformers trainer on the same made-up completions, with less work."""

import json

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from tests.megatron.comparing import GRADIENT, assert_equal, gradient_differences
from tests.megatron.conftest import rows_of
from tests.megatron.runs import train_megatron
from tests.megatron.test_stock import LAYOUTS, params

pytestmark = pytest.mark.timeout(600)  # two runs of 20 seconds, on a busy machine

OURS = {"external_plugins": plugin_file("megatron")}
FROZEN = {"freeze_vit": True, "freeze_aligner": True}
# Passes of a step that is not the first: of reference and policy, 4 groups each.
PASSES = 8
# mcore-bridge reads from the text's config whether the output layer is the embedding; checkpoints have it in both.
TIED = {"qwen3_5": {"tie_word_embeddings": True}}
# What a recurrent layer's decay is made of: its gradients, a millionth of all, are sums over products of decays
# in fp32, which a state that is handed on has in another order. They are 2e-8 of the norm of all gradients apart.
DECAY, OF_DECAY = ("A_log", "dt_bias", "in_proj_a"), 5e-4
PROMPT = 40  # tokens of each of the four rows: 16 of them of its image


@pytest.mark.parametrize("name", params(LAYOUTS))
def test_layout(name, python, tiny, four_rows, reference, tmp_path):
    ranks, arguments, mode = LAYOUTS[name]
    # Some layouts run with the fixes of the stack alone; ours stands beside them.
    plugins = [arguments[key] for key in ("external_plugins",) if key in arguments]
    arguments = {**arguments, "external_plugins": [*plugins, OURS["external_plugins"]]}
    run = train_megatron(python, tiny("qwen2_5_vl"), four_rows, tmp_path, ranks, **arguments)
    assert mode.items() <= run.mode.items()
    assert_equal(run, reference())
    assert "self-check failed" not in run.output
    state = gains(tmp_path)
    assert [name for name, gain in state.items() if gain["state"] != "on"] == ["vision_once"]
    if run.mode["tp"] == run.mode["pp"] == 1:
        counts = run.counts[1]
        assert counts["decoder_calls"] == PASSES  # no old pass
        assert counts["head_rows"] == 2 * completion_tokens(run, 1)
        rows = len(run.samples[1])
        assert counts["tokens"] == counts["head_rows"] + 2 * (
            4 * PROMPT - rows
        )  # of each row not the last token


@pytest.mark.lane
@pytest.mark.parametrize("vision", [FROZEN, {}], ids=["frozen tower", "trained tower"])
@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5", "internvl", "glm4v"])
def test_family(family, vision, python, tiny, four_rows, tmp_path):
    model = tiny(family, **TIED.get(family, {}))
    stock = train_megatron(python, model, four_rows, tmp_path / "stock", **vision)
    run = train_megatron(python, model, four_rows, tmp_path / "ours", **vision, **OURS)
    assert_equal(run, stock, gradient=GRADIENT if family != "qwen3_5" else OF_DECAY)
    for ours, theirs in zip(run.gradients, stock.gradients, strict=True):
        apart = gradient_differences(ours, theirs).items()
        assert max(share for name, share in apart if not any(part in name for part in DECAY)) <= GRADIENT
    on = {name for name, gain in gains(tmp_path / "ours").items() if gain["state"] == "on"}
    assert on == {"shared_prefix", "completion_logits", "skip_old_logps"} | (
        {"vision_once"} if vision else set()
    )
    assert run.counts[1]["decoder_calls"] == PASSES


def test_a_micro_batch_of_one_becomes_a_group_and_an_image_is_encoded_once(
    python, tiny, four_rows, reference, tmp_path
):
    run = train_megatron(
        python, tiny("qwen2_5_vl"), four_rows, tmp_path, micro_batch_size=1, **FROZEN, **OURS
    )
    assert_equal(run, reference(**FROZEN))
    facts = json.loads((tmp_path / "gains.json").read_text())
    assert "micro-batches of 1 x 16 are now 4 x 4" in facts["cut"]
    assert {gain["state"] for gain in facts["gains"].values()} == {"on"}
    first, second, third = run.counts
    assert second["tower_calls"] == third["tower_calls"] == 4  # of 4 distinct images, for two passes
    assert first["tower_calls"] == 4 + 1  # the self-check's pass is ms-swift's own
    assert second["decoder_calls"] == PASSES


@pytest.mark.lane
def test_lora(python, tiny, four_rows, tmp_path):
    lora = {"tuner_type": "lora", "lora_rank": 4, "lora_dropout": 0, "target_modules": "all-linear"}
    stock = train_megatron(python, tiny("qwen2_5_vl"), four_rows, tmp_path / "stock", **lora)
    run = train_megatron(python, tiny("qwen2_5_vl"), four_rows, tmp_path / "ours", **lora, **OURS)
    assert_equal(run, stock)
    assert run.counts[1]["decoder_calls"] == PASSES


@pytest.mark.lane
def test_rows_with_none_one_and_three_images(python, tiny, four_rows, shared_folder, tmp_path):
    rows = testing.read_jsonl(four_rows)
    picture = rows[0]["images"][0]
    text = "Which digit is this?"
    for row, number in zip(rows, (0, 1, 3, 1), strict=True):
        row["images"] = [picture, *(other["images"][0] for other in rows[1:3])][:number] if number else []
        row["messages"][0]["content"] = "<image>" * number + f"{text} {number}"
    mixed = rows_of(shared_folder / "mixed_rows", rows)
    arguments = {"micro_batch_size": 2, **FROZEN}
    stock = train_megatron(python, tiny("qwen2_5_vl"), mixed, tmp_path / "stock", **arguments)
    run = train_megatron(python, tiny("qwen2_5_vl"), mixed, tmp_path / "ours", **arguments, **OURS)
    assert_equal(run, stock)
    assert run.counts[1]["decoder_calls"] == PASSES


@pytest.mark.lane
@pytest.mark.parametrize("feature", ["shared_prefix", "completion_logits", "skip_old_logps", "self_check"])
def test_each_is_off_by_its_name(feature, python, tiny, four_rows, reference, tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_DISABLE", f"megatron.{feature}")
    run = train_megatron(python, tiny("qwen2_5_vl"), four_rows, tmp_path, **OURS)
    assert_equal(run, reference())
    on = {name for name, gain in gains(tmp_path).items() if gain["state"] == "on"}
    assert feature not in on
    if feature == "skip_old_logps":
        assert run.counts[1]["decoder_calls"] == PASSES + 4


@pytest.mark.lane
def test_the_monitors_watch(python, tiny, four_rows, tmp_path):
    run = train_megatron(
        python,
        tiny("qwen2_5_vl"),
        four_rows,
        tmp_path,
        external_plugins=plugin_file("all"),
        micro_batch_size=1,
    )
    assert len(run.logs) == 3
    assert run.logs[-1]["watch/moved"] > 0
    assert run.logs[-1]["watch/entropy"] > 0
    assert {"seconds/forward", "seconds/backward", "seconds/optimizer", "seconds/reference"} <= set(
        run.logs[1]
    )
    assert (tmp_path / "watch/rank_0.json").exists()
    assert (tmp_path / "report.html").exists()


def gains(folder):
    return json.loads((folder / "gains.json").read_text())["gains"]


def completion_tokens(run, step):
    return sum(len(rows["policy"]) for rows in run.samples[step].values())
