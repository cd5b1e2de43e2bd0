"""Runs of the host with vLLM on the CPU, and what vLLM needs there.

What vLLM cannot do on a CPU is worked around here and in ``cpu_vllm.py`` beside (weight sync). The package knows
nothing of it.
"""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.run import free_port, swift_command
from swift_grpo_ext.watch.journal import read_events
from tests.conftest import built_once
from tests.trainer.test_engine_vision import sharp

HERE = Path(__file__).parent
ENGINE_PLUGINS = [plugin_file(), HERE / "cpu_vllm.py", HERE / "tempt.py", HERE / "faulty.py"]
TRAINER_PLUGINS = [
    *ENGINE_PLUGINS,
    HERE / "record.py",
    HERE / "restart.py",
    HERE.parent / "e2e/length_reward.py",
]
ENGINE = {"vllm_max_model_len": 512, "vllm_enforce_eager": True}
ENVIRONMENT = {
    **testing.cpu_environment(),
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a further process would not load the plugins
    "VLLM_DISABLE_PYNCCL": "1",  # there are no GPUs; see cpu_vllm.py
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Recorded:
    """What a run left in its folder."""

    folder: Path

    @property
    def rollouts(self):
        """What the engine sampled, by completion; see ``record.py``."""
        return testing.read_jsonl(self.folder / "rollouts.jsonl")

    @property
    def logps(self):
        """How far the log-probs of engine and trainer are apart, by pass."""
        return testing.read_jsonl(self.folder / "logps.jsonl")

    @property
    def steps(self):
        """The host's log of each step."""
        return [row for row in testing.read_logging(self.folder / "output") if "loss" in row]


@pytest.fixture(scope="session")
def sharp_qwen(shared_folder):
    folder = shared_folder / "sharp_qwen_stock"
    return built_once(folder, lambda path: sharp(path, factor=10, stock_vocabulary=True))


def said(run, kind="verdict"):
    """What the monitors said, the newest last."""
    (folder,) = (run.folder / "output").glob("v*")
    return read_events(folder, [kind])


def faults(run):
    """What was said of the engine."""
    return [event["text"] for event in said(run) if event["id"].startswith("engine-")]


def compared(run):
    """How far engine and trainer are apart, by check."""
    return [row["watch/engine_ratio"] for row in run.steps if "watch/engine_ratio" in row]


def grpo_with_vllm(model, digits, folder, variables, **chosen):
    """Train with rollouts that vLLM samples from the whole distribution, in a process of its own."""
    options = {
        "reward_funcs": "even_characters",
        "beta": 0,
        "top_p": 1.0,
        "top_k": -1,
        "use_vllm": True,
        "external_plugins": TRAINER_PLUGINS,
        **ENGINE,
        **chosen,
    }
    arguments = testing.grpo_arguments(model, digits.train, folder / "output", **options)
    environment = {**ENVIRONMENT, "RECORD": str(folder), "MASTER_PORT": str(free_port()), **variables}
    testing.run_swift("rlhf", arguments, env=environment, timeout=1500)
    return Recorded(folder)


@contextmanager
def rollout_server(model, folder, variables, port=None, **chosen):
    """``swift rollout`` until the block ends.

    Yields:
        The trainer's arguments that reach it.
    """
    port, log = port or free_port(), folder / "server.log"
    arguments = {"model": model, **testing.host_types(model), "torch_dtype": "float32", **ENGINE}
    arguments |= {"host": "127.0.0.1", "port": port, "external_plugins": ENGINE_PLUGINS, **chosen}
    with open(log, "w") as out:
        process = subprocess.Popen(
            [swift_command(), "rollout", *testing.command_line(arguments)],
            env={**os.environ, **ENVIRONMENT, **variables},
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


def wait_until_free(port, seconds=200):
    """ms-swift's server takes the next port while the connections of one before linger, a minute or so."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return
        time.sleep(1)
    pytest.fail(f"port {port} is not free")


def wait_for(url, process, log, seconds=300):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2)
            return
        except OSError:  # it does not listen yet, or one before it is just being killed
            time.sleep(1)
    pytest.fail(f"the rollout server did not start:\n{log.read_text()[-3000:]}")
