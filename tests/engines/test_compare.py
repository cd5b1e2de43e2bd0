"""``swift-grpo-ext compare-engine`` with vLLM in the process: families that agree, and a fault that is named."""

import os
import subprocess
import sys

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.testing.arguments import CPU_ARGUMENTS
from swift_grpo_ext.testing.run import free_port
from tests.engines.conftest import ENGINE, ENGINE_PLUGINS, ENVIRONMENT
from tests.engines.test_families import FAMILIES

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]

COMPARED = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "gemma3", "llava_onevision")


def page_of(model, digits, fault=""):
    """Exit status and what is printed."""
    options = {**CPU_ARGUMENTS, **testing.host_types(model), "max_completion_length": 16, "max_length": 2048}
    options |= {"use_vllm": True, "vllm_mode": "colocate", **ENGINE, "external_plugins": ENGINE_PLUGINS}
    words = ["compare-engine", str(digits.train), "--model", str(model), "--completions", "4"]
    done = subprocess.run(
        [sys.executable, "-m", "swift_grpo_ext.cli", *words, *testing.command_line(options)],
        env={**os.environ, **ENVIRONMENT, "ENGINE_FAULT": fault, "MASTER_PORT": str(free_port())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("family", COMPARED)
def test_a_family_agrees_and_a_fault_is_named(family, digits, tmp_path):
    tried, model = FAMILIES[family], tmp_path / "model"
    testing.tiny_checkpoint(family, model, stock_vocabulary=True, **tried.text)
    if tried.prepare:
        tried.prepare(model)
    status, page = page_of(model, digits)
    assert (status, "agree: mean exp|d| 1" in page) == (0, True), page[-3000:]
    status, page = page_of(model, digits, "temperature")
    assert (status, "samples at temperature 0.3, the trainer at 1" in page) == (1, True), page[-3000:]
