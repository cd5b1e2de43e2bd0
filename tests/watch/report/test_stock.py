"""The report of a run that knew nothing of this package: the host's own command and its own files."""

from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.watch.report import write_report
from swift_grpo_ext.watch.report.run import read_run
from swift_grpo_ext.watch.report.verdict import judge
from tests.watch.report.made_up_run import data_of

STEPS = 12


@pytest.mark.slow
def test_a_stock_run_becomes_a_report(tiny_qwen_stock, digits, tmp_path):
    arguments = testing.grpo_arguments(
        tiny_qwen_stock,
        digits.train,
        tmp_path,
        external_plugins=Path(__file__).parents[2] / "e2e/length_reward.py",
        reward_funcs="even_characters",
        max_steps=STEPS,
    )
    testing.run_swift("rlhf", arguments, timeout=280)
    run = read_run(tmp_path)
    assert not (run.folder / "watch").exists(), "the run was not watched"
    assert not any(name.startswith("watch/") for record in run.records for name in record)
    assert len(run.completions) == 4 * STEPS
    assert not judge(run).headline.startswith(("Too early", "Nothing is learned"))
    report = write_report(tmp_path)
    assert data_of(report)["runs"][0]["figures"].keys() >= {
        "reward",
        "kl",
        "grad_norm",
        "completions/mean_length",
    }
    assert {row["step"] for row in run.completions} == set(range(1, STEPS + 1))
