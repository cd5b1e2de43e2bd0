"""A run that was made without this package, or by a release before it, is resumed with it."""

import json

import pytest
from swift.trainers.trainer_factory import TrainerFactory

import swift_grpo_ext
from swift_grpo_ext import testing
from swift_grpo_ext.compat import registry
from swift_grpo_ext.plugin_files import plugin_file

OPTIONS = {
    "model_type": "llama",
    "template": "qwen2_5",
    "reward_funcs": "format",
    "per_device_train_batch_size": 8,
    "save_strategy": "steps",
    "save_steps": 2,
    "save_only_model": False,
}


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    rows = [{"messages": [{"role": "user", "content": f"number {number}"}]} for number in range(8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def run(questions, tmp_path):
    swift_grpo_ext.register()
    registry.import_what_is_awaited()
    model = testing.tiny_checkpoint("llama", tmp_path / "model")

    def start(name, steps, **overrides):
        options = {**OPTIONS, "external_plugins": plugin_file(), "max_steps": steps, **overrides}
        words = testing.grpo_arguments(model, questions, tmp_path / name, **options)
        testing.run_in_process("rlhf", words)
        return testing.newest_version(tmp_path / name)

    return start


def test_an_old_run_is_resumed(run, tmp_path, monkeypatch):
    with monkeypatch.context() as old:
        old.setitem(TrainerFactory.TRAINER_MAPPING, "grpo", "swift.rlhf_trainers.GRPOTrainer")
        old.setitem(TrainerFactory.TRAINING_ARGS_MAPPING, "grpo", "swift.rlhf_trainers.GRPOConfig")
        made = run("old", 2)
    resumed = run("new", 4, resume_from_checkpoint=made / "checkpoint-2")
    assert (resumed / "checkpoint-4").is_dir()
    assert [
        row["global_step/max_steps"] for row in testing.read_logging(tmp_path / "new") if "loss" in row
    ] == ["3/4", "4/4"]
    rows = testing.read_completions(tmp_path / "new")
    prompts = [row["prompt"] for row in rows]
    assert len(prompts) == 16
    assert all(len(set(prompts[start : start + 4])) == 1 for start in range(0, len(prompts), 4))
