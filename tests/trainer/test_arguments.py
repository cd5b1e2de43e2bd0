"""What is set right at the start: LoRA dropout, the limit of waiting, refusals, patches."""

import json

import pytest
import torch
from peft import LoraConfig, get_peft_model
from swift.rewards import ORM, orms
from torch import nn

from swift_grpo_ext import testing
from swift_grpo_ext.compat import registry
from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.trainer.noise import asked_for_dropout, turn_lora_dropout_off
from tests.trainer.unstarted_trainer import unstarted_trainer


def lora(dropout):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.Linear(4, 4))
    return get_peft_model(model, LoraConfig(target_modules=["0", "2"], lora_dropout=dropout))


def test_dropout_of_lora_layers_goes_and_the_models_own_stays():
    model = lora(0.05)
    assert turn_lora_dropout_off(model) == 2
    kept = [m.p for name, m in model.named_modules() if isinstance(m, nn.Dropout)]
    assert sorted(kept) == [0.0, 0.0, 0.3]
    assert model.peft_config["default"].lora_dropout == 0.0
    assert turn_lora_dropout_off(model) == 0
    assert turn_lora_dropout_off(nn.Linear(1, 1)) == 0


@pytest.mark.parametrize(
    ("dropout", "argv", "asked"),
    [
        (0.05, ["swift"], False),
        (0.05, ["--lora_dropout", "0.05"], True),
        (0.05, ["--lora_dropout=0.05"], True),
        (0.1, ["swift"], True),
        (0.0, ["swift"], True),
    ],
)
def test_a_dropout_that_was_asked_for(dropout, argv, asked):
    assert asked_for_dropout(lora(dropout), argv) is asked


def test_a_full_model_has_nothing_to_ask_for():
    assert asked_for_dropout(nn.Linear(1, 1), []) is False


@pytest.fixture
def run(tiny_qwen, digits, tmp_path):
    def start(env=None, **overrides):
        options = {"seed": 1, "reward_funcs": "format", "max_steps": 1, **overrides}
        arguments = testing.grpo_arguments(tiny_qwen, digits.train, tmp_path / "out", **options)
        testing.run_in_process("rlhf", arguments, env)
        return testing.newest_version(tmp_path / "out")

    return start


class Uneven(ORM):
    def __call__(self, completions, **kwargs):
        return [row % 2 for row in range(len(completions))]


@pytest.mark.parametrize(("dropout", "kept"), [pytest.param(0.05, 0.0, marks=pytest.mark.slow), (0.2, 0.2)])
def test_on_policy_no_token_is_clipped_with_lora(run, monkeypatch, dropout, kept):
    """The host's default goes; another value was asked for and stays."""
    monkeypatch.setitem(orms, "uneven", Uneven)
    folder = run(
        tuner_type="lora", lora_dropout=dropout, reward_funcs="uneven", epsilon=1e-6, save_strategy="steps"
    )
    config = json.loads((folder / "checkpoint-1" / "adapter_config.json").read_text())
    assert config["lora_dropout"] == kept
    if not kept:
        (step,) = (row for row in testing.read_jsonl(folder / "logging.jsonl") if "loss" in row)
        assert step["clip_ratio/region_mean"] == 0
        assert step["reward_std"] > 0


def test_the_patches_of_a_run(run):
    run()
    states = {outcome.patch.id: outcome.state for outcome in registry.outcomes()}
    assert states["A3-zero3-trace"] in ("not needed", "applied", "waiting")
    assert set(states.values()) <= {"applied", "not needed", "waiting"}
    assert states["A7-worker-seed"] == "applied"
    assert states["F25-gloo-exit"] == "applied"


def test_refused_before_a_model_loads(run, monkeypatch):
    monkeypatch.setattr(torch.nn.Module, "load_state_dict", None)
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(RefusedError, match="A9: 1 ranks cannot be cut into tensor-parallel groups of 2"):
        run(use_vllm=True, vllm_mode="colocate", vllm_tensor_parallel_size=2)


@pytest.mark.parametrize(
    ("flag", "seconds"),
    [(None, 1800), pytest.param(90, 90, marks=pytest.mark.slow)],
    ids=["half an hour", "the flag"],
)
def test_ranks_wait_half_an_hour_unless_told(run, flag, seconds):
    args = json.loads((run({}, ddp_timeout=flag) / "args.json").read_text())
    assert args["training_args"].count(f"ddp_timeout={seconds},") == 1


def test_real_needs_whole_groups(tiny_qwen, digits, tmp_path):
    overrides = {"loss_type": "real", "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    with pytest.raises(RefusedError, match="micro-batches of 2 hold parts of groups of 4"):
        unstarted_trainer(tiny_qwen, digits.train, tmp_path, **overrides)


def test_fewer_rows_than_a_generation_batch_has_prompts_are_refused(tiny_qwen, digits, tmp_path):
    """ms-swift trains for no step and ends with status 0."""
    path = tmp_path / "one.jsonl"
    path.write_text(digits.train.read_text().splitlines()[0] + "\n")
    with pytest.raises(RefusedError, match="1 rows do not fill a generation batch of 2 prompts"):
        unstarted_trainer(tiny_qwen, path, tmp_path / "run", per_device_train_batch_size=8)
