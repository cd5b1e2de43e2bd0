"""``swift-grpo-ext compare-engine`` with vLLM in the process: families that agree, and a fault that is named."""

import os
import subprocess
import sys

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.testing.arguments import CPU_ARGUMENTS
from swift_grpo_ext.testing.run import free_port
from tests.engines.conftest import ENGINE, ENGINE_PLUGINS, ENVIRONMENT, rollout_server
from tests.engines.test_families import FAMILIES

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]

COMPARED = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "gemma3", "llava_onevision")


def page_of(model, digits, fault="", server="", **more):
    """Exit status and what is printed."""
    options = {**CPU_ARGUMENTS, **testing.host_types(model), "max_completion_length": 16, "max_length": 2048}
    colocate = {} if server else {"use_vllm": True, "vllm_mode": "colocate"}
    options |= {**colocate, **ENGINE, "external_plugins": ENGINE_PLUGINS, **more}
    words = ["compare-engine", str(digits.train), "--model", str(model), "--completions", "4"]
    words += ["--server", server] if server else []
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


def test_a_server_is_compared_by_its_address(digits, tmp_path):
    """With weights that it has been sent, and with a fault of its own."""
    model = tmp_path / "model"
    testing.tiny_checkpoint("qwen2_5_vl", model, stock_vocabulary=True)
    for fault, expected in (
        ("", (0, "agree: mean exp|d| 1")),
        ("temperature", (1, "samples at temperature 0.3")),
    ):
        with rollout_server(model, tmp_path, {"ENGINE_FAULT": fault}) as server:
            address = f"http://127.0.0.1:{server['vllm_server_port']}"
            group = {"vllm_server_group_port": server["vllm_server_group_port"]}
            status, page = page_of(model, digits, server=address, **group)
        assert (status, expected[1] in page) == (expected[0], True), page[-3000:]
