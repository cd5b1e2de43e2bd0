"""Ovis2 through the host's own commands."""

import json
from pathlib import Path
from statistics import mean

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from tests.asserted_modes import asserting_mode

HERE = Path(__file__).parent
REWARD = {
    "reward_funcs": "even_characters",
    "external_plugins": [HERE / "length_reward.py", plugin_file()],
}


def steps_of(output):
    return [row for row in testing.read_logging(output) if "reward" in row]


def room(name):
    """The part of the model that a weight belongs to."""
    return name.split(".")[1]


@pytest.mark.slow
def test_twenty_steps_of_grpo_raise_the_reward(tiny_ovis, digits, tmp_path):
    arguments = testing.grpo_arguments(
        tiny_ovis,
        digits.train,
        tmp_path / "out",
        **REWARD,
        max_steps=20,
        num_generations=8,
        per_device_train_batch_size=16,
        learning_rate=5e-3,
        lr_scheduler_type="constant",
        beta=0.0,
    )
    testing.run_swift("rlhf", arguments, timeout=280)
    rewards = [step["reward"] for step in steps_of(tmp_path / "out")]
    assert len(rewards) == 20
    first, last = mean(rewards[:5]), mean(rewards[-5:])
    assert last > first + 0.2, f"{first:.2f} -> {last:.2f}"


@pytest.mark.parametrize(
    ("frozen", "adapted"),
    [
        ({}, {"language_model"}),
        ({"freeze_vit": False}, {"language_model", "vision_tower"}),
        ({"freeze_vit": False, "freeze_llm": True}, {"vision_tower"}),
        ({"freeze_aligner": False}, {"language_model"}),  # a table of embeddings has no linear layer
    ],
    ids=["default", "vit", "vit only", "aligner"],
)
def test_lora_on_all_linear_layers_of_what_is_not_frozen(tiny_ovis, digits, tmp_path, frozen, adapted):
    from safetensors.torch import load_file

    arguments = testing.grpo_arguments(
        tiny_ovis,
        digits.train,
        tmp_path / "out",
        tuner_type="lora",
        target_modules="all-linear",
        save_strategy="steps",
        save_steps=2,
        lr_scheduler_type="constant",
        **REWARD,
        **frozen,
    )
    testing.run_in_process("rlhf", arguments)
    (adapter,) = (tmp_path / "out").rglob("adapter_model.safetensors")
    weights = load_file(adapter)
    assert {room(name.removeprefix("base_model.model.")) for name in weights} == adapted
    moved = {room(name.removeprefix("base_model.model.")) for name in weights if weights[name].any()}
    assert moved == adapted
    assert all(weights[name].any() for name in weights if "language_model" in name and "lora_B" in name)


@pytest.mark.parametrize(
    ("frozen", "trains"),
    [
        ({}, {"language_model"}),
        ({"freeze_vit": False}, {"language_model", "vision_tower"}),
        ({"freeze_aligner": False}, {"language_model", "visual_embeddings_table"}),
        ({"freeze_llm": True, "freeze_aligner": False}, {"visual_embeddings_table"}),
    ],
    ids=["default", "vit", "aligner", "aligner only"],
)
def test_freezing_does_what_its_names_say(tiny_ovis, digits, tmp_path, frozen, trains):
    from safetensors.torch import load_file

    arguments = testing.grpo_arguments(
        tiny_ovis,
        digits.train,
        tmp_path / "out",
        **REWARD,
        save_strategy="steps",
        save_steps=2,
        lr_scheduler_type="constant",
        **frozen,
    )
    testing.run_in_process("rlhf", arguments)
    (saved,) = (tmp_path / "out").rglob("checkpoint-*/model.safetensors")
    before, after = load_file(tiny_ovis / "model.safetensors"), load_file(saved)
    moved = {room(name) for name in before if not before[name].equal(after[name])}
    assert moved == trains


def test_sft_then_inference(tiny_ovis, digits, tmp_path):
    from swift_grpo_ext.testing.arguments import CPU_ARGUMENTS, command_line

    shared = {"model": tiny_ovis, "external_plugins": plugin_file(), **CPU_ARGUMENTS}
    train = {
        "dataset": digits.train,
        "output_dir": tmp_path / "sft",
        "tuner_type": "full",
        "max_steps": 2,
        "logging_steps": 1,
        "per_device_train_batch_size": 4,
    }
    testing.run_in_process("sft", command_line({**shared, **train}))
    losses = [row["loss"] for row in testing.read_logging(tmp_path / "sft") if "loss" in row]
    assert len(losses) == 2
    (checkpoint,) = (tmp_path / "sft").rglob("checkpoint-2")
    infer = {
        "model": checkpoint,
        "external_plugins": plugin_file(),
        "attn_impl": "sdpa",
        "torch_dtype": "float32",
        "val_dataset": digits.test,
        "load_from_cache_file": False,
        "dataset_num_proc": 1,
        "result_path": tmp_path / "answers.jsonl",
        "max_new_tokens": 3,
        "max_batch_size": 4,
    }
    testing.run_in_process("infer", command_line(infer))
    answers = testing.read_jsonl(tmp_path / "answers.jsonl")
    assert len(answers) == len(testing.read_jsonl(digits.test))
    assert all("response" in answer for answer in answers)


@pytest.mark.slow
@pytest.mark.two_ranks
@pytest.mark.parametrize("gather", [True, False], ids=["gathered", "by module"])
@pytest.mark.parametrize("family", ["ovis2", "qwen2_5_vl"])
def test_text_and_image_rows_mixed_under_zero3_on_two_ranks(family, gather, request, digits, tmp_path):
    model = request.getfixturevalue({"ovis2": "tiny_ovis", "qwen2_5_vl": "tiny_qwen"}[family])
    images = testing.read_jsonl(digits.train)[:4]
    texts = [{"messages": [{"role": "user", "content": f"What is {n} and two?"}]} for n in range(3)]
    broken = {"messages": [{"role": "user", "content": "<image>?"}], "images": [str(tmp_path / "no.png")]}
    rows = [row for pair in zip(images, [*texts, broken], strict=True) for row in pair]
    dataset = tmp_path / "mixed.jsonl"
    dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = testing.grpo_arguments(
        model,
        dataset,
        tmp_path / "out",
        external_plugins=[HERE / "gloo_for_zero3.py", *REWARD["external_plugins"]],
        reward_funcs="even_characters",
        num_generations=2,
        per_device_train_batch_size=2,  # each rank has one prompt: one with an image, the other without
        max_steps=4,
        deepspeed="zero3",
        ds3_gather_for_generation=gather,
    )
    testing.run_swift("rlhf", *asserting_mode(arguments, ranks=2), ranks=2, timeout=290)
    steps = steps_of(tmp_path / "out")
    assert len(steps) == 4
    assert all(step["grad_norm"] >= 0 for step in steps)
    assert steps[-1]["bad_rows"] == 1
