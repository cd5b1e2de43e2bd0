"""Tiny random-weight checkpoints and short CPU runs of ms-swift, for smoke tests of one's own rewards.

A whole GRPO run of the real trainer in a few seconds, without a download or a GPU::

    from swift_grpo_ext import testing

    model = testing.tiny_checkpoint("qwen2_5_vl", "tiny")
    dataset = testing.digits_dataset("digits", limit=16).train
    arguments = testing.grpo_arguments(model, dataset, "output", reward_funcs="format")
    testing.run_swift("rlhf", arguments)
    print(testing.read_logging("output"))
"""

from swift_grpo_ext.testing.arguments import CPU_ARGUMENTS, command_line, grpo_arguments, host_types
from swift_grpo_ext.testing.digits import Digits, digits_dataset
from swift_grpo_ext.testing.run import SwiftResult, cpu_environment, run_in_process, run_swift
from swift_grpo_ext.testing.tiny import tiny_checkpoint, tiny_config, tiny_ovis2, tiny_qwen2_5_vl
from swift_grpo_ext.watch.journal import newest_version, read_completions, read_jsonl, read_logging

__all__ = [
    "CPU_ARGUMENTS",
    "Digits",
    "SwiftResult",
    "command_line",
    "cpu_environment",
    "digits_dataset",
    "grpo_arguments",
    "host_types",
    "newest_version",
    "read_completions",
    "read_jsonl",
    "read_logging",
    "run_in_process",
    "run_swift",
    "tiny_checkpoint",
    "tiny_config",
    "tiny_ovis2",
    "tiny_qwen2_5_vl",
]
