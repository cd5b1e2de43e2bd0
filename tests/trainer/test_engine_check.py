"""Engine and trainer are compared in real runs: each injected fault is found within two steps, health is silent."""

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.watch.journal import read_events
from tests.forked import run_ranks
from tests.trainer.runs import REWARD, figures, told

FAULTY = __file__.replace("test_engine_check", "faulty_engine")
FIRST = {"max_steps": 1}
MOVES = {"learning_rate": 0.05, "reward_funcs": "even_characters"}


def verdicts(output, kind="verdict", name="engine-"):
    (run,) = output.glob("v*")
    return [event for event in read_events(run, [kind]) if event["id"].startswith(name)]


def run(model, digits, output, monkeypatch, fault="", **overrides):
    monkeypatch.setenv("ENGINE_FAULT", fault)
    figures(
        model,
        digits.train,
        output,
        external_plugins=[REWARD, plugin_file(), FAULTY],
        max_completion_length=16,
        **{"max_steps": 2, **overrides},
    )
    return verdicts(output)


DIFFERENT = "the engine runs different weights (another checkpoint"
PROMPT = "got another prompt than the trainer: token"
STALE = "they agreed at step 0, so the engine's weights are stale"


@pytest.mark.parametrize(
    ("fault", "overrides", "words"),
    [
        pytest.param("temperature", FIRST, DIFFERENT, marks=pytest.mark.slow),
        ("top_p", FIRST, DIFFERENT),
        pytest.param("system, silent", FIRST, PROMPT, marks=pytest.mark.slow),
        pytest.param("thinking", FIRST, PROMPT, marks=pytest.mark.slow),
        ("pixels", FIRST, "tokens in the engine and [4] in the trainer"),
        pytest.param("other checkpoint", FIRST, DIFFERENT, marks=pytest.mark.slow),
        ("never synced", {"beta": 0, **MOVES}, STALE),
        pytest.param("never synced", {"beta": 0.01, **MOVES}, STALE, marks=pytest.mark.slow),
        pytest.param(
            "never synced",
            {"beta": 0, "num_iterations": 4, "max_steps": 5, **MOVES},
            STALE,
            marks=pytest.mark.slow,
        ),
        pytest.param("without adapters", {"tuner_type": "lora", **MOVES}, STALE, marks=pytest.mark.slow),
    ],
)
def test_a_fault_is_found_within_two_steps(fault, overrides, words, tiny_qwen, digits, tmp_path, monkeypatch):
    found = run(tiny_qwen, digits, tmp_path, monkeypatch, fault, **overrides)
    assert found, "nothing was said"
    assert words in found[0]["text"]
    assert "row (" in found[0]["text"]


def test_what_the_guard_forbids_is_no_fault(digits, tmp_path, monkeypatch):
    """Of a derived family that is more than its config names: what its tokenizer calls media."""
    model = testing.tiny_checkpoint("gemma3", tmp_path / "model")
    assert run(model, digits, tmp_path / "run", monkeypatch, **FIRST, **testing.host_types(model)) == []
    (ratio,) = (row["watch/engine_ratio"] for row in testing.read_logging(tmp_path / "run") if "loss" in row)
    assert ratio < 1.0001


@pytest.mark.parametrize(
    "overrides",
    [
        {"top_p": 0.8, "top_k": 20, "temperature": 1.2},
        pytest.param({"torch_dtype": "bfloat16", "bf16": True}, marks=pytest.mark.slow),
        pytest.param({"tuner_type": "lora", "learning_rate": 0.05}, marks=pytest.mark.slow),
    ],
)
def test_a_healthy_run_is_silent(overrides, tiny_qwen, digits, tmp_path, monkeypatch):
    output = tmp_path / "run"
    found = run(tiny_qwen, digits, output, monkeypatch, **{"max_steps": 4, **overrides})
    assert found == []
    logged = [row for row in testing.read_logging(output) if "loss" in row]
    assert any("watch/engine_ratio" in row for row in logged), "nothing was compared"
    timed = ("prepare", "encode", "rollout", "vision", "forward", "backward", "optimizer")
    assert {f"seconds/{phase}" for phase in timed} <= set(logged[0])
    bill = read_events(testing.newest_version(output), ["bill"])[-1]
    assert {"rollout", "prepare", "backward"} <= set(bill["seconds"])
    assert bill["work"]


OLD_PASS = {"num_iterations": 2, "gradient_accumulation_steps": 2, "steps_per_generation": 3}


@pytest.mark.parametrize(("fault", "expected"), [("", 0), ("temperature", 1)])
def test_an_old_pass_is_what_is_compared_where_there_is_one(
    fault, expected, tiny_qwen, digits, tmp_path, monkeypatch
):
    """Updates begin within rollouts, so the policy's own passes come too late."""
    found = run(tiny_qwen, digits, tmp_path, monkeypatch, fault, **{**OLD_PASS, "max_steps": 3})
    assert len(found[:1]) == expected
    logged = [row for row in testing.read_logging(tmp_path) if "loss" in row]
    assert any("watch/engine_ratio" in row for row in logged), "nothing was compared"


@pytest.mark.parametrize("fault", ["silent", "mute, silent"])
def test_what_an_engine_does_not_say_is_not_compared_and_that_is_said(
    fault, tiny_qwen, digits, tmp_path, monkeypatch
):
    with told() as messages:
        found = run(tiny_qwen, digits, tmp_path, monkeypatch, fault, max_steps=1)
    assert found == []
    prompts = [message for message in messages if "engine check: prompts not compared" in message]
    assert len(prompts) == ("mute" in fault)
    (line,) = [message for message in messages if "engine check: log-probs" in message]
    assert line.endswith("not compared: the engine returns none")


def test_a_switch_turns_it_off(tiny_qwen, digits, tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_DISABLE", "engine_check")
    assert run(tiny_qwen, digits, tmp_path, monkeypatch, "temperature", **FIRST) == []


@pytest.mark.two_ranks
@pytest.mark.timeout(600)
def test_each_rank_may_have_an_engine_and_all_ranks_agree(tiny_qwen, digits, tmp_path):
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path / "run",
        external_plugins=[
            REWARD,
            plugin_file(),
            FAULTY,
            FAULTY.replace("faulty_engine", "checked_ranks"),
        ],
        reward_funcs="even_characters",
        max_completion_length=16,
    )
    variables = {"ENGINE_FAULT": "rank 1", "RECORD": str(tmp_path)}
    run_ranks("rlhf", arguments, env=variables, timeout=500)
    first, second = (testing.read_jsonl(tmp_path / f"checked_{rank}.jsonl") for rank in (0, 1))
    assert len(first) == 2
    assert first == second
    words = "transformers' generate of rank 1 and trainer disagree"
    assert words in first[0]["text"]
    assert words in verdicts(tmp_path / "run")[0]["text"]
