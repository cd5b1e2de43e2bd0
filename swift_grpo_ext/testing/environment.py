"""Environment variables under which the host runs on a CPU and asks no hub for anything."""

from __future__ import annotations


def cpu_environment() -> dict[str, str]:
    """Variables of a CPU run of the host.

    The accelerator of accelerate, torch and DeepSpeed is the CPU, and model hubs are left alone: offline,
    the host waits 22 s per start for an answer. They have to be set before torch is imported.
    """
    return {
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "USE_HF": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
