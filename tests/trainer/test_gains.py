"""What is on and why the rest is not: one line at the start, and gains.json."""

import json

import pytest

from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.passes import Passes
from swift_grpo_ext.watch.report.run import read_gains
from tests.trainer.runs import told
from tests.trainer.unstarted_trainer import unstarted_trainer


@pytest.fixture(scope="module")
def trainer(tiny_qwen, digits, tmp_path_factory):
    return unstarted_trainer(tiny_qwen, digits.train, tmp_path_factory.mktemp("built"))


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
        "skip_old_logps off (the SDAR loss reads it), chunked_logps off; gains.json"
    )
    found = json.loads((tmp_path / "gains.json").read_text())
    assert found["of_a_prompt_in_a_micro_batch"] == found["num_generations"] == 4
    assert found["cut"].endswith("are now 8 x 1")
    assert found["gains"]["reduced_recompute"] == {"state": "on", "why": "", "fix": ""}
    assert found["gains"]["skip_old_logps"] == {
        "state": "off",
        "why": "the SDAR loss reads it",
        "fix": "--sdar_loss_coef 0",
    }
    assert found["gains"]["vision_once"]["fix"] == "SWIFT_GRPO_EXT_DISABLE without trainer.vision_once"
    assert "skip_old_logps off: the SDAR loss reads it (to change it: --sdar_loss_coef 0)" in read_gains(
        tmp_path
    )


@pytest.mark.parametrize("text", ["", "[]", '{"gains": [1]}', '{"gains": {"a": 1, "b": {"state": null}}}'])
def test_a_damaged_file_of_gains_is_no_reason_not_to_report(text, tmp_path):
    (tmp_path / "gains.json").write_text(text)
    assert len(read_gains(tmp_path)) == ("b" in text)
