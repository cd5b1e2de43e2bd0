"""The presets before the configuration class of DeepSpeed 0.18.9; the installed one is asked by test_presets."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from old_deepspeed import RECOMMENDED, environment_of

from swift_grpo_ext.deepspeed import presets

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("old deepspeed")]

ASK = """
import json
import deepspeed
from swift_grpo_ext.deepspeed import presets
from deepspeeds_own import refusal
broken = presets.load("ext_zero3")
broken["zero_optimization"]["stage3_prefetch_bukket_size"] = 0
answers = {name: refusal(presets.load(name)) for name in presets.available()}
print(json.dumps({"version": deepspeed.__version__, "answers": answers, "broken": refusal(broken)}))
"""


@pytest.fixture(scope="module")
def answers():
    environment = {**os.environ, **environment_of(RECOMMENDED)}
    own = str(Path(__file__).parents[1])  # where deepspeeds_own lies
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH", ""), own]))
    result = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True, timeout=600
    )
    return json.loads(result.stdout.splitlines()[-1])


def test_it_is_the_old_release(answers):
    assert answers["version"] == RECOMMENDED


@pytest.mark.parametrize("name", list(presets.available()))
def test_the_old_deepspeed_takes_it(name, answers):
    assert answers["answers"][name] == ""


def test_the_old_deepspeed_refuses_what_it_does_not_know(answers):
    assert "stage3_prefetch_bukket_size" in answers["broken"]
