"""Who reads the log-probs of old passes and of silent completions, and how what is on is told."""

import json

import pytest

from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.features import decide
from swift_grpo_ext.trainer.passes import Passes
from swift_grpo_ext.watch.report.run import read_gains
from tests.trainer.built import built
from tests.trainer.runs import told
from tests.trainer.test_features import causes, reasons


@pytest.fixture(scope="module")
def trainer(tiny_qwen, digits, tmp_path_factory):
    return built(tiny_qwen, digits.train, tmp_path_factory.mktemp("built"))


@pytest.mark.parametrize(
    ("owner", "name", "value", "why"),
    [
        ("", "beta", 0.04, "beta is 0.04"),
        ("", "loss_type", "real", "loss_type real compares them"),
        ("", "compute_entropy", True, "entropies are asked for"),
        ("", "rollout_importance_sampling_mode", "token_truncate", "importance sampling"),
        ("", "off_policy_sequence_mask_delta", 0.1, "a mask"),
        ("", "advantage_reweight", "rlsd", "a teacher is compared with it"),
    ],
)
def test_who_needs_silent_completions(trainer, monkeypatch, owner, name, value, why):
    monkeypatch.setattr(trainer, "beta", 0.0)
    assert decide(trainer, Settings()).skip_silent
    assert causes(decide(trainer, Settings(disable="trainer.skip_silent")))["skip_silent"] == "switched off"
    monkeypatch.setattr(trainer, name, value)
    assert causes(decide(trainer, Settings())) == {"skip_silent": why} | (
        {"skip_old": "--advantage_reweight rlsd"} if value == "rlsd" else {}
    )


@pytest.mark.parametrize(
    ("owner", "name", "value", "why"),
    [
        ("", "_needs_old_logps", bool, "ms-swift leaves it out itself"),
        ("", "kl_in_reward", True, "the KL in rewards reads it"),
        ("", "_teacher_use_disable_adapter", True, "a teacher is compared with it"),
        ("", "advantage_reweight", "rlsd", "--advantage_reweight rlsd"),
        ("", "sdar_loss_coef", 0.1, "the SDAR loss reads it"),
    ],
)
def test_who_needs_old_log_probs(trainer, monkeypatch, owner, name, value, why):
    monkeypatch.setattr(trainer.args if owner else trainer, name, value, raising=False)
    found = reasons(trainer)
    assert found["skip_old"] == why
    assert found["shared_prefix"] == ""


def test_updates_that_begin_within_a_rollout_need_old_log_probs(trainer, monkeypatch):
    monkeypatch.setattr(trainer.args, "steps_per_generation", 3)
    assert reasons(trainer)["skip_old"] == ""
    monkeypatch.setattr(trainer.args, "gradient_accumulation_steps", 2)
    assert reasons(trainer)["skip_old"] == "updates begin within rollouts"


def test_liger_with_rollout_importance_sampling_needs_old_log_probs(trainer, monkeypatch):
    monkeypatch.setattr(trainer.args, "use_liger_kernel", True)
    assert reasons(trainer)["skip_old"] == ""
    monkeypatch.setattr(trainer.args, "rollout_importance_sampling_mode", "token_truncate")
    assert reasons(trainer)["skip_old"] == "the liger loss corrects rollouts by it"


def test_the_line_is_short_and_the_file_says_all(trainer, monkeypatch, tmp_path):
    monkeypatch.setattr(trainer, "sdar_loss_coef", 0.1)
    monkeypatch.setattr(trainer.args, "use_vllm", True)
    monkeypatch.setattr(trainer.args, "output_dir", str(tmp_path))
    with told() as messages:
        switches = Settings(disable="trainer.shared_prefix,trainer.vision_once,trainer.chunked_logps")
        Passes(trainer, switches, "micro-batches of 1 x 8 are now 8 x 1")
    (line,) = [text for text in messages if "shared_prefix" in text]
    assert line == (
        "swift-grpo-ext: shared_prefix off (switched off), vision_once off (switched off), "
        "skip_old off (the SDAR loss reads it), chunked_logps off; gains.json"
    )
    found = json.loads((tmp_path / "gains.json").read_text())
    assert found["of_a_prompt_in_a_micro_batch"] == found["num_generations"] == 4
    assert found["cut"].endswith("are now 8 x 1")
    assert found["gains"]["spare_recompute"] == {"state": "on", "why": "", "fix": ""}
    assert found["gains"]["skip_old"] == {
        "state": "off",
        "why": "the SDAR loss reads it",
        "fix": "--sdar_loss_coef 0",
    }
    assert found["gains"]["vision_once"]["fix"] == "SWIFT_GRPO_EXT_DISABLE without trainer.vision_once"
    assert "skip_old off: the SDAR loss reads it (to change it: --sdar_loss_coef 0)" in read_gains(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"gains": [1]}', '{"gains": {"a": 1, "b": {"state": null}}}'])
def test_a_damaged_file_of_gains_is_no_reason_not_to_report(text, tmp_path):
    (tmp_path / "gains.json").write_text(text)
    assert len(read_gains(tmp_path)) == ("b" in text)
