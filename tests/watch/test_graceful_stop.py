"""A run that is asked to end through the command ``swift``, which only waits for the training process."""

import os
import pty
import signal
import subprocess
import time
from contextlib import suppress

import psutil
import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.run import free_port, swift_command
from swift_grpo_ext.watch.ending import EndRequest
from swift_grpo_ext.watch.journal import read_events
from tests.asserted_modes import asserting_mode

PATIENCE = 200


def command(model, digits, output, **overrides):
    arguments = testing.grpo_arguments(
        model,
        digits.train,
        output,
        reward_funcs="test_Slow",
        external_plugins=[plugin_file(), __file__.replace("test_graceful_stop", "faulty_rewards")],
        max_steps=2000,
        save_strategy="steps",
        save_steps=5000,
        **overrides,
    )
    return [swift_command(), "rlhf", *arguments]


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


def folder_with_steps(output):
    found = list(output.glob("v*/logging.jsonl"))
    return found[0].parent if found and found[0].read_text().count("loss") >= 2 else None


def check_saved(folder, name):
    (stopped,) = until(lambda: read_events(folder, ["stopped"]))
    assert stopped["signal"] == name
    state = folder / f"checkpoint-{stopped['step']}/trainer_state.json"
    until(state.is_file)


def gone(processes):
    _, alive = psutil.wait_procs(processes, timeout=60)
    return not alive


class Gone:
    def is_running(self):
        return False


def test_the_end_of_the_launcher_asks_once():
    request = EndRequest()
    request.look_at_launcher()
    assert request.reason == "", "this process was not started by the command"
    request._above = [Gone()]
    request.look_at_launcher()
    assert request.reason == "the end of the swift command"
    request.reason = "SIGTERM"
    request.look_at_launcher()
    assert request.reason == "SIGTERM"


def test_a_second_request_ends_at_once():
    request = EndRequest()
    before = signal.getsignal(signal.SIGINT)
    request.listen()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def check_sigterm_of_the_command(words, variables, output):
    process = subprocess.Popen(
        words,
        env={**os.environ, **testing.cpu_environment(), **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        folder = until(lambda: folder_with_steps(output))
        training = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        process.wait(10)
        check_saved(folder, "the end of the swift command")
        assert gone(training)
    finally:
        process.kill()


@pytest.mark.slow
def test_sigterm_of_the_command_saves_and_ends_the_training(tiny_qwen, digits, tmp_path):
    check_sigterm_of_the_command(command(tiny_qwen, digits, tmp_path), {}, tmp_path)


@pytest.mark.slow
@pytest.mark.two_ranks
def test_sigterm_of_the_command_saves_and_ends_both_ranks(tiny_qwen, digits, tmp_path):
    ranks = {"NPROC_PER_NODE": "2", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    words, mode = asserting_mode(command(tiny_qwen, digits, tmp_path, ddp_backend="gloo"), ranks=2)
    check_sigterm_of_the_command(words, {**ranks, **mode}, tmp_path)


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_saves_and_ends(tiny_qwen, digits, tmp_path):
    words = command(tiny_qwen, digits, tmp_path)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(words[0], words, {**os.environ, **testing.cpu_environment()})

    said = []

    def listen():
        """Read what it says, so that it is never held up, and see whether it has logged its steps."""
        os.set_blocking(terminal, False)
        with suppress(OSError):  # nothing to read, or nobody has the terminal any more
            said.append(os.read(terminal, 1 << 20).decode(errors="replace"))
        return folder_with_steps(tmp_path)

    folder = until(listen)
    training = psutil.Process(pid).children(recursive=True)
    os.write(terminal, b"\x03")

    def ended():
        listen()
        waited, status = os.waitpid(pid, os.WNOHANG)
        return [status] if waited == pid else None

    (status,) = until(ended)
    assert os.waitstatus_to_exitcode(status) != 0
    check_saved(folder, "SIGINT")
    (stopped,) = read_events(folder, ["stopped"])
    until(lambda: listen() and "to resume it:" in "".join(said))
    *_, last = "".join(said).strip().splitlines()
    assert f"--resume_from_checkpoint {folder / stopped['checkpoint']}" in last
    assert "swift rlhf " in last
    assert gone(training)
    os.close(terminal)
