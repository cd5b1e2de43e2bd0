"""A patch that does not fit the host, in a real run: a warning."""

from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file

pytestmark = [pytest.mark.slow]

SAID = (
    "swift-grpo-ext: patch A5-reentrant-ddp does not apply, so the defect stays: DDP with reentrant "
    "checkpointing stops with 'Expected to mark a variable ready only once' [DRIFT: "
    "swift.trainers.mixin:SwiftMixin._fix_gradient_checkpointing now takes (self, force=), the patch knows "
    "(self)] -> upgrade swift-grpo-ext, or see https://github.com/modelscope/ms-swift/issues/3171"
)


def test_a_drifted_host(tiny_qwen, digits, tmp_path):
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path,
        external_plugins=[Path(__file__).with_name("drifted_host.py"), plugin_file()],
        reward_funcs="format",
        max_steps=1,
        seed=1,
    )
    result = testing.run_swift("rlhf", arguments, timeout=250, check=False)
    assert result.returncode == 0, result.tail[-3000:]
    assert SAID in result.tail
