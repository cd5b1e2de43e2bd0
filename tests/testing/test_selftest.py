"""The equivalence suite: what it calls a violation, and two of its rows in real runs."""

import math

import pytest
from typer.testing import CliRunner

from swift_grpo_ext.cli import app
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.testing.selftest import runs
from swift_grpo_ext.testing.selftest.cases import Case, cases, cut
from swift_grpo_ext.testing.selftest.runs import Comparison, selftest

EQUAL = {"loss": 0.0, "grad_norm": 1e-7, "parameters": 1e-6}


@pytest.mark.parametrize(
    ("comparison", "violated"),
    [
        (Comparison(Case("a", {}), EQUAL), False),
        (Comparison(Case("a", {}), {**EQUAL, "grad_norm": 1e-3}), True),
        (Comparison(Case("a", {}), {**EQUAL, "parameters": math.nan}), True),
        (Comparison(Case("a", {}), error="ValueError: broken"), True),
        (Comparison(Case("a", {}, differs="so it is defined"), {**EQUAL, "loss": 1.0}), False),
        (Comparison(Case("a", {}, measures=("log_ratio",)), {"log_ratio": 1e-9}), True),
        (Comparison(Case("a", {}, measures=("clipped",)), {"clipped": math.nan}), True),
    ],
)
def test_what_is_a_violation(comparison, violated):
    assert comparison.violated is violated


def test_names_are_unique_and_every_family_of_losses_is_there():
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)
    for loss in ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "gspo"):
        assert any(name.startswith(f"{loss}: 1 x 8") for name in names)


def test_unknown_names_are_told():
    with pytest.raises(SwiftGrpoExtError, match=r"knows no 'gpt'.*qwen2_5_vl; .*ovis2; .*qwen3_vl"):
        selftest(["gpt"])
    with pytest.raises(SwiftGrpoExtError, match="knows no 'nothing like it'"):
        selftest(only="nothing like it")


def test_a_folder_of_an_earlier_run_is_left_alone(tmp_path):
    (tmp_path / "ovis2.log").touch()
    with pytest.raises(SwiftGrpoExtError, match="needs an empty folder"):
        selftest(["ovis2"], folder=tmp_path)


def test_two_rows_in_real_runs_and_the_exit_code(tmp_path, monkeypatch):
    rows = [
        Case("cut", cut(8), cut(4, 2)),
        Case("another beta", cut(8), {**cut(8), "beta": 0.5}),
    ]
    monkeypatch.setattr("swift_grpo_ext.testing.selftest.runs.cases", lambda: iter(rows))
    command = ["selftest", "--family", "qwen2_5_vl", "--only"]
    good = CliRunner().invoke(app, [*command, "cut"])
    assert good.exit_code == 0, good.output
    assert "No equality is violated" in good.output
    bad = CliRunner().invoke(app, [*command, "beta"])
    assert bad.exit_code == 1
    assert "1 equalities are VIOLATED" in bad.output


def test_a_run_that_fails_is_a_row_of_the_table(tiny_qwen, digits, tmp_path):
    bench = runs.Bench(tiny_qwen, digits.train, tmp_path)
    comparison = runs.find(Case("broken", {**cut(3), "num_generations": 4}, cut(8)), bench)
    assert comparison.violated
    assert "divisible" in comparison.error


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("family", ["qwen2_5_vl", "ovis2"])
def test_no_equality_is_violated(family, tmp_path):
    assert selftest([family], folder=tmp_path)
