"""Rows that are too long: replaced for their whole group, on every rank by the same row, whatever the template."""

import json

import pytest

import swift_grpo_ext
from swift_grpo_ext import testing
from swift_grpo_ext.errors import RefusedError
from tests.forked import run_ranks


@pytest.fixture
def questions(asking):
    """Four questions of eight are too long."""
    return asking(f"{'very ' * (300 if number % 2 else 1)}long {number}" for number in range(8))


@pytest.fixture(scope="module")
def tiny_llama(tmp_path_factory):
    return testing.tiny_checkpoint("llama", tmp_path_factory.mktemp("models") / "llama")


def arguments(model, questions, output, **overrides):
    options = {
        "model_type": "llama",
        "template": "qwen2_5",
        "truncation_strategy": "delete",
        "max_length": 200,
        "reward_funcs": "format",
        "per_device_train_batch_size": 16,
        "max_steps": 3,
    }
    return testing.grpo_arguments(model, questions, output, **{**options, **overrides})


@pytest.fixture
def run(tiny_llama, questions, asked, tmp_path):
    swift_grpo_ext.register()

    def start(**overrides):
        variables = {"SWIFT_GRPO_EXT_DISABLE": "trainer.shared_prefix"}
        testing.run_in_process(
            "rlhf", arguments(tiny_llama, questions, tmp_path / "out", **overrides), variables
        )
        return [set(group) for step in asked(tmp_path / "out") for group in step]

    return start


def test_before_groups_mix_prompts(run, stock_trainer):
    assert any(len(group) > 1 for group in run(per_device_train_batch_size=8))


def test_a_group_is_one_prompt(run):
    """Four groups of eight rows, where the host goes round for ever: a batch is sixteen."""
    found = run()
    assert len(found) == 12
    assert all(len(group) == 1 for group in found)
    assert not any("very very" in prompt for group in found for prompt in group)


def test_a_step_does_not_ask_twice_where_other_rows_are_left(run):
    found = run(per_device_train_batch_size=8)
    assert all(found[place] != found[place + 1] for place in range(0, len(found), 2))


def test_where_every_row_is_too_long_the_run_ends(run):
    with pytest.raises(RefusedError, match="rows of a batch cannot be encoded, and 0 others were found"):
        run(max_length=4)


def test_a_row_without_its_image_is_replaced_as_ms_swift_would(digits, asked, tmp_path):
    """Of a template that is ms-swift's own; its loader raises an OSError."""
    swift_grpo_ext.register()
    model = testing.tiny_checkpoint("qwen3_vl", tmp_path / "model")
    rows = [json.loads(line) for line in digits.train.read_text().splitlines()[:4]]
    rows[1]["images"] = rows[2]["images"] = [str(tmp_path / "gone.png")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"model_type": "qwen3_vl", "template": "qwen3_vl", "per_device_train_batch_size": 16}
    words = arguments(
        model, tmp_path / "rows.jsonl", tmp_path / "out", **options, max_length=1024, max_steps=1
    )
    testing.run_in_process("rlhf", words, {"SWIFT_GRPO_EXT_DISABLE": "trainer.shared_prefix"})
    pictures = [row["images"] for row in testing.read_completions(tmp_path / "out")]
    assert len(pictures) == 16
    assert not any("gone.png" in str(one) for one in pictures)


@pytest.mark.slow
@pytest.mark.two_ranks
def test_two_ranks_choose_the_same_row(tiny_llama, questions, asked, tmp_path):
    options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "num_generations": 4}
    variables = {"SWIFT_GRPO_EXT_DISABLE": "trainer.shared_prefix"}
    words = arguments(tiny_llama, questions, tmp_path / "out", **options)
    run_ranks("rlhf", words, variables, timeout=240)
    found = [group for step in asked(tmp_path / "out") for group in step]
    assert [len(set(group)) for group in found] == [1] * 6
