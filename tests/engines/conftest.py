"""The host's rollout server on the CPU, and what its vLLM needs there."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.run import free_port, swift_command

HERE = Path(__file__).parent
PLUGINS = [plugin_file(), HERE / "cpu_vllm.py", HERE.parent / "e2e/length_reward.py"]
ENGINE = {"vllm_max_model_len": 512, "vllm_enforce_eager": True}
ENVIRONMENT = {
    **testing.cpu_environment(),
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a further process would not load the plugins
    "OMP_NUM_THREADS": "1",
}


def grpo_with_vllm(model, digits, output, **overrides):
    """Arguments of a run whose rollouts vLLM samples from the whole distribution."""
    plugins = [*PLUGINS, *overrides.pop("more_plugins", ())]
    chosen = {"reward_funcs": "even_characters", "beta": 0, "top_p": 1.0, "top_k": -1, **ENGINE, **overrides}
    return testing.grpo_arguments(
        model, digits.train, output, use_vllm=True, external_plugins=plugins, **chosen
    )


@contextmanager
def rollout_server(model, folder, *plugins):
    """``swift rollout`` until the block ends.

    Yields:
        The trainer's arguments that reach it.
    """
    port, log = free_port(), folder / "server.log"
    arguments = {"model": model, **testing.host_types(model), "torch_dtype": "float32", **ENGINE}
    arguments |= {"host": "127.0.0.1", "port": port, "external_plugins": [*PLUGINS, *plugins]}
    with open(log, "w") as out:
        process = subprocess.Popen(
            [swift_command(), "rollout", *testing.command_line(arguments)],
            env={**os.environ, **ENVIRONMENT},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health/", process, log)
        yield {
            "vllm_mode": "server",
            "vllm_server_host": "127.0.0.1",
            "vllm_server_port": port,
            "vllm_server_group_port": free_port(),
        }
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(url, process, log, seconds=300):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2)
            return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(1)
    pytest.fail(f"the rollout server did not start:\n{log.read_text()[-3000:]}")
