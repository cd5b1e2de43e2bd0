"""Rollouts by transformers 4 of families with positions of three axes: ms-swift's own stop in the second token."""

from types import SimpleNamespace

import pytest
import torch

from swift_grpo_ext import testing
from swift_grpo_ext.compat import generate_positions
from swift_grpo_ext.compat.registry import patches

DEFECT = patches()["F47-generate-positions"].defect
affected = pytest.mark.skipif(bool(DEFECT.absent_because()), reason=DEFECT.absent_because() or "has it")


@pytest.mark.parametrize(("axes", "left"), [(3, False), (2, True), (None, False)])
def test_only_positions_of_three_axes_are_left_out(axes, left):
    seen = {}

    def generate(template, model, **kwargs):
        seen.update(kwargs)

    positions = {} if axes is None else {"position_ids": torch.zeros([4] * axes, dtype=torch.long)}
    fix = generate_positions.fix.fix(generate)
    fix(SimpleNamespace(), None, input_ids=torch.zeros(1, 2), **positions)
    assert ("position_ids" in seen) is left
    assert "input_ids" in seen


def test_it_is_of_transformers_4_alone():
    assert not DEFECT.absent_because({"ms-swift": "4.6.0", "transformers": "4.57.6"})
    assert DEFECT.absent_because({"ms-swift": "4.6.0", "transformers": "5.12.1"})


@affected
def test_a_run_ends_without_the_patch_and_goes_on_with_it(prove, tiny_qwen, digits, tmp_path):
    proof = prove(generate_positions.fix)
    arguments = testing.grpo_arguments(tiny_qwen, digits.train, tmp_path / "out", reward_funcs="ext_format")
    proof.drift()
    proof.on()
    testing.run_in_process("rlhf", arguments)
    assert len([row for row in testing.read_logging(tmp_path / "out") if "loss" in row]) == 2
