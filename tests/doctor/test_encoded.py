"""Rows through the real template of a tiny checkpoint."""

from dataclasses import replace

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.doctor.check import command, inputs
from swift_grpo_ext.findings import Severity


@pytest.fixture
def rules_of(tiny_qwen, digits, tmp_path):
    """Rules that find something in a run of the tiny model."""

    def find(dataset=None, **overrides):
        words = testing.grpo_arguments(
            tiny_qwen,
            dataset or digits.train,
            tmp_path,
            reward_funcs="format",
            learning_rate=1e-5,
            **overrides,
        )
        found = command.findings_of(replace(inputs.run_of(words), row_limit=4))
        return {finding.rule for finding in found if finding.severity is not Severity.NOTE}

    return find


def test_a_sound_dataset_passes(rules_of):
    assert rules_of() == set()


def test_prompts_longer_than_max_length_are_named(rules_of):
    assert "row-too-long" in rules_of(max_length=8)


def test_prompt_and_completion_must_fit_the_engine(rules_of):
    found = rules_of(use_vllm=True, vllm_mode="colocate", vllm_max_model_len=20)
    assert "row-over-model-len" in found
