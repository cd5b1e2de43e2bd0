"""``swift-grpo-ext compare-engine`` says in one page whether an engine samples from the trainer's policy."""

import pytest
from typer.testing import CliRunner

from swift_grpo_ext import testing
from swift_grpo_ext.cli import app
from swift_grpo_ext.doctor.compare import words_of
from swift_grpo_ext.testing.arguments import CPU_ARGUMENTS
from tests.conftest import built_once
from tests.trainer.test_engine_check import FAULTY

FAMILIES = ("qwen2_vl", "qwen3_vl", "ovis2", "internvl", "gemma3", "glm4v_moe")


def compared(model, digits, monkeypatch, fault=""):
    """Exit status and page."""
    monkeypatch.setenv("ENGINE_FAULT", fault)
    options = {**CPU_ARGUMENTS, **testing.host_types(model), "max_completion_length": 16, "max_length": 2048}
    words = testing.command_line({**options, "external_plugins": FAULTY})
    done = CliRunner().invoke(
        app, ["compare-engine", str(digits.train), "--model", str(model), "--completions", "4", *words]
    )
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def test_agreement_and_a_fault_are_one_page(tiny_qwen, digits, monkeypatch):
    status, page = compared(tiny_qwen, digits, monkeypatch)
    assert status == 0
    assert "\nagree: mean exp|d| 1, mean |d| " in f"\n{page}"
    rows = [line for line in page.splitlines() if line.startswith("  row (")]
    assert len(rows) == 4
    assert all("turn 1, " in row and "most at token" in row for row in rows)
    status, page = compared(tiny_qwen, digits, monkeypatch, "temperature")
    assert status == 1
    assert "it samples at temperature 0.3, the trainer at 1" in page


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_six_families(family, shared_folder, digits, monkeypatch):
    folder = shared_folder / "compared" / family
    model = built_once(folder, lambda path: testing.tiny_checkpoint(family, path))
    status, page = compared(model, digits, monkeypatch)
    assert (status, "agree: mean exp|d| 1" in page) == (0, True), page
    status, page = compared(model, digits, monkeypatch, "temperature")
    assert status == 1
    assert "samples at temperature 0.3" in page


def test_a_server_is_asked_by_its_address_and_words_of_the_user_win(tmp_path):
    words = words_of(tmp_path, "model", 4, "http://127.0.0.1:8000", "out", ["--beta", "0.04", "--top_k=5"])
    assert "--vllm_server_base_url=http://127.0.0.1:8000" in words
    assert "--use_vllm=True" in words
    assert "--beta=0" not in words
    assert words[-3:] == ["--beta", "0.04", "--top_k=5"]
