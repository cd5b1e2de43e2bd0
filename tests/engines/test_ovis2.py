"""vLLM does not serve transformers' own Ovis2: what it answers, and that the package says so beforehand."""

import json
import os
import subprocess
import sys

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.doctor.check import command, inputs
from swift_grpo_ext.errors import HostRunError
from swift_grpo_ext.models.families.ovis2 import OVIS2
from tests.engines.conftest import ENVIRONMENT, grpo_with_vllm

pytestmark = pytest.mark.lane

REASON = OVIS2.lacks["vllm"]
SERVE = """
import json, sys
from vllm import LLM
LLM(sys.argv[1], dtype="float32", max_model_len=512, enforce_eager=True, **json.loads(sys.argv[2]))
"""


def printed(*words):
    """Exit status and output of this Python."""
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(
        [sys.executable, *map(str, words)], env=environment, capture_output=True, text=True, timeout=200
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        pytest.param(
            {},
            "'Ovis2Processor' object has no attribute '_get_num_multimodal_tokens'",
            id="by its backend for transformers' classes",
        ),
        pytest.param(
            {"hf_overrides": {"architectures": ["Ovis"]}},
            "'Ovis2Config' object has no attribute 'visual_tokenizer_config'",
            id="by its class for the remote-code checkpoints",
        ),
    ],
)
def test_vllm_refuses_it(options, refusal, tiny_ovis):
    status, output = printed("-c", SERVE, tiny_ovis, json.dumps(options))
    assert status != 0
    assert refusal in output


def test_check_says_so(tiny_ovis, digits, tmp_path):
    words = testing.grpo_arguments(tiny_ovis, digits.train, tmp_path, use_vllm=True, vllm_mode="colocate")
    (finding,) = [f for f in command.findings_of(inputs.run_of(words)) if f.rule == "vllm-family"]
    assert finding.what == REASON


def test_a_run_ends_with_one_line_before_vllm_loads_anything(tiny_ovis, digits, tmp_path):
    with pytest.raises(HostRunError, match="ovis2 does not support vllm: vLLM has no"):
        grpo_with_vllm(tiny_ovis, digits, tmp_path, {}, vllm_mode="colocate")
