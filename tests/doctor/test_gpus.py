"""What ``env`` says of GPUs, from the driver's own tool."""

import pytest

from swift_grpo_ext.doctor import gpus

ANSWERS = [
    (
        "echo 'NVIDIA H100, 550.54, 81559, 81008'",
        ["GPU 0: NVIDIA H100, driver 550.54, 79.1 of 79.6 GiB free"],
    ),
    (
        "printf 'A, 1, 1024, 512\\nB, 1, [N/A], [N/A]\\n'",
        ["GPU 0: A, driver 1, 0.5 of 1.0 GiB free", "GPU 1: B, driver 1, memory not known"],
    ),
    ("echo 'No devices were found'; exit 6", ["GPU: none (No devices were found)"]),
    ("exit 9", ["GPU: none (nvidia-smi ended with 9)"]),
]


@pytest.mark.parametrize(("answer", "lines"), ANSWERS)
def test_each_gpu_has_its_line(tmp_path, monkeypatch, answer, lines):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{answer}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert gpus.gpus_in_words() == lines


def test_a_machine_without_a_driver_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.gpus_in_words() == ["GPU: none (no nvidia-smi here)"]
