"""Our Megatron trainer: equal to the stock transformers trainer on the same made-up completions, with less work."""

import json

import pytest

from swift_grpo_ext.plugin_files import plugin_file
from tests.megatron.comparing import assert_equal
from tests.megatron.runs import RunError, train_megatron
from tests.megatron.table import CELLS, FEATURES, LAYOUTS, ONE_OF_A_GROUP, PIPELINE
from tests.megatron.test_stock import cells

# Passes of a step that is not the first: of reference and policy, 4 groups each.
PASSES = 8
PROMPT = 40  # tokens of each of the four rows: 4 of them of its image
PATCHES = 16  # of an image


@pytest.mark.parametrize("name", cells())
def test_cell(name, made, reference, record_property):
    """Against ms-swift's own Megatron trainer and, but for LoRA, against its transformers trainer."""
    run, wanted = made(f"ours, {name}"), CELLS[name]
    assert wanted.mode.items() <= run.mode.items()
    stock = assert_equal(run, made(f"stock, {name}"))
    record_property("stock", json.dumps(stock))  # of the report (--junitxml)
    if not wanted.is_lora:
        transformers = assert_equal(run, reference(**wanted.reference))
        record_property("transformers", json.dumps(transformers))
    on = {name for name, gain in gains(run).items() if gain["state"] == "on"}
    once = {"vision_once"} if wanted.is_frozen else set()
    assert on == {"shared_prefix", "completion_logits", "skip_old_logps"} | once
    assert shares(run)


def test_tokens_and_rows_of_the_output_layer_are_counted(made):
    run = made("ours, one rank")
    counts = run.counts[1]
    assert counts["head_rows"] == 2 * completion_tokens(run, 1)
    rows = len(run.samples[1])
    assert counts["tokens"] == counts["head_rows"] + 2 * (4 * PROMPT - rows)  # of each row not the last token


def test_one_of_two_ranks_says_what_is_on(made):
    output = made("stock, pipeline").output  # the first of its batch has that of all runs
    assert output.count("] swift-grpo-ext: shared_prefix on, ") == 1  # each line once in a process


@pytest.mark.lane
def test_dropout_of_lora_that_nobody_asked_for_is_off(made):
    run = made("ours, LoRA by default")
    assert {gain["state"] for name, gain in gains(run).items() if name != "reference_copy"} == {"on"}
    assert shares(run)
    for sample in run.samples[0].values():  # the policy is the reference, and has no noise
        assert (sample["policy"] - sample["ref"]).abs().max() <= 1e-6


def test_a_micro_batch_of_one_becomes_a_group_and_an_image_is_encoded_once(made, reference):
    run = made("ours, one of a group")
    assert_equal(run, reference(**ONE_OF_A_GROUP.reference))
    facts = json.loads((run.folder / "gains.json").read_text())
    assert "4 x 4 completions instead of 1 x 16" in facts["cut"]
    assert {gain["state"] for name, gain in facts["gains"].items() if name != "reference_copy"} == {"on"}
    first, second, third = run.counts
    assert second["tower_calls"] == third["tower_calls"] == 4  # of 4 distinct images, for two passes
    assert first["tower_calls"] == 4 + 1  # the self-check's pass is ms-swift's own
    assert second["decoder_calls"] == PASSES


def test_the_work_of_an_update_is_counted_against_ms_swifts(made):
    """Of four completions of each of four prompts, with an image each."""
    run, stock = made("ours, one of a group"), made("stock, one rank").counts[1]
    ours, completions = run.counts[1], completion_tokens(run, 1)
    assert stock["tokens"] == stock["head_rows"] == 3 * (16 * PROMPT + completions)  # old, reference, policy
    assert stock["patches"] == 3 * 16 * PATCHES
    assert ours["tokens"] == 2 * (4 * PROMPT + completions - 16)  # of a completion not the last token
    assert ours["head_rows"] == 2 * completions
    assert ours["patches"] == 4 * PATCHES  # for both passes


@pytest.mark.lane
@pytest.mark.parametrize("feature", FEATURES)
def test_each_is_off_by_its_name(feature, made, reference):
    run = made(f"without {feature}")
    assert_equal(run, reference())
    on = {name for name, gain in gains(run).items() if gain["state"] == "on"}
    needed = {"completion_logits": {"completion_logits", "shared_prefix"}}.get(feature, {feature})
    assert on == {"shared_prefix", "completion_logits", "skip_old_logps"} - needed
    if feature == "skip_old_logps":
        assert run.counts[1]["decoder_calls"] == PASSES + 4


@pytest.mark.slow
def test_the_monitors_watch(python, tiny, four_rows, tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_STALL_SECONDS", "1")  # a sign of life four times a second
    run = train_megatron(
        python,
        tiny("qwen2_5_vl"),
        four_rows,
        tmp_path,
        external_plugins=plugin_file("all"),
        micro_batch_size=1,
        val_dataset=four_rows,
        eval_steps=2,
    )
    assert len(run.logs) == 3
    failed = [line for line in run.output.splitlines() if "turned off" in line and "it took" not in line]
    assert failed == []
    assert "'eval_reward'" in run.output
    assert f"best_model_checkpoint: {tmp_path}/checkpoint-3" in run.output
    assert run.logs[-1]["watch/moved"] > 0
    assert run.logs[-1]["watch/entropy"] > 0
    assert {"seconds/forward", "seconds/backward", "seconds/optimizer", "seconds/reference"} <= set(
        run.logs[1]
    )
    watching = json.loads((tmp_path / "gains.json").read_text())["watching"]
    states = {name: row["state"] for name, row in watching.items()}
    assert states == {"engine_check": "on", "held_out": "on", "trace_numerics": "off"}
    assert "] swift-grpo-ext: engine_check on, held_out on, trace_numerics off" in run.output
    assert "engine check: log-probs not compared: the engine returns none" in run.output
    assert (tmp_path / "watch/rank_0.json").exists()
    assert (tmp_path / "report.html").exists()


@pytest.mark.lane
@pytest.mark.parametrize(
    ("family", "layout"), [("qwen2_5_vl", "one rank"), ("qwen3_vl_moe", "expert parallel")]
)
def test_weights_of_16_bits_are_watched_by_their_copies(family, layout, python, tiny, four_rows, tmp_path):
    """At such a rate few of them move in a step, which is nothing to warn of where float32 copies do.

    With expert parallelism experts have an optimizer of their own.
    """
    wanted = LAYOUTS[layout].by_ours()
    arguments = {
        **wanted.arguments,
        "external_plugins": plugin_file("all"),
        "torch_dtype": None,
        "bf16": True,
        "lr": 1e-6,
    }
    run = train_megatron(python, tiny(family), four_rows, tmp_path, wanted.ranks, **arguments)
    assert wanted.mode.get("ep", 1) == run.mode["ep"]
    assert [line for line in run.output.splitlines() if "turned off" in line and "it took" not in line] == []
    assert "[coarse-weights]" not in run.output
    assert 0 < run.logs[-1]["watch/moved"] < 0.5


@pytest.mark.lane
@pytest.mark.parametrize(
    ("layout", "ends"), [({}, " 65\n"), (PIPELINE, "exitcode  : 65")], ids=["one", "pipeline"]
)
def test_a_run_in_which_nothing_is_scored_does_not_end_with_0(
    layout, ends, python, tiny, four_rows, tmp_path
):
    """Of a pipeline the last rank judges, and all end alike."""
    options = {"external_plugins": plugin_file("all"), "reward_funcs": "made_up_none", **layout}
    with pytest.raises(RunError, match=ends):
        train_megatron(python, tiny("qwen2_5_vl"), four_rows, tmp_path, 2 if layout else 1, **options)
    said = (tmp_path / "output.txt").read_text()
    assert (
        "swift-grpo-ext: the run ends at step 3: no completion was scored for 3 steps (reward made_up_none"
        in said
    )


def gains(run):
    return json.loads((run.folder / "gains.json").read_text())["gains"]


def shares(run):
    """Whether each group went through the models once in each pass, and no old pass was made."""
    return run.counts[1]["decoder_calls"] == PASSES * run.mode["tp"] * run.mode["pp"]


def completion_tokens(run, step):
    return sum(len(rows["policy"]) for rows in run.samples[step].values())
