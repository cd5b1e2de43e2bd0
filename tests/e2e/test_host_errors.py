"""Inside the host, a fault of the set-up is an exception that names its cause and fix."""

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.errors import SwiftGrpoExtError


def arguments(model, digits, output, **overrides):
    return testing.grpo_arguments(model, digits.train, output, reward_funcs="ext_format", **overrides)


def test_an_unknown_setting_ends_the_command_with_one_line(tiny_qwen, digits, tmp_path):
    result = testing.run_swift(
        "rlhf",
        arguments(tiny_qwen, digits, tmp_path),
        env={"SWIFT_GRPO_EXT_CONSOEL": "1"},
        check=False,
        timeout=120,
    )
    assert result.returncode != 0
    (line,) = {line for line in result.tail.splitlines() if "did you mean SWIFT_GRPO_EXT_CONSOLE?" in line}
    assert line.endswith("unknown setting [SWIFT_GRPO_EXT_CONSOEL] -> did you mean SWIFT_GRPO_EXT_CONSOLE?")


def test_an_unknown_preset_names_the_nearest(tiny_qwen, digits, tmp_path):
    with pytest.raises(SwiftGrpoExtError, match=r"unknown DeepSpeed preset 'ext_zero22'.*'ext_zero2'"):
        testing.run_in_process("rlhf", arguments(tiny_qwen, digits, tmp_path, deepspeed="ext_zero22"))


def test_a_plugin_file_that_does_not_exist_is_named(tiny_qwen, digits, tmp_path):
    # ModuleNotFoundError until ms-swift 4.5.2
    with pytest.raises((FileNotFoundError, ModuleNotFoundError), match="no_such_plugin"):
        testing.run_in_process(
            "rlhf",
            arguments(tiny_qwen, digits, tmp_path, external_plugins=tmp_path / "no_such_plugin.py"),
        )
