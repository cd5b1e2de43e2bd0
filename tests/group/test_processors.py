"""What `make test-processors` does with every test that compares numbers, here with two packs: other instructions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLDEST = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "OMP_NUM_THREADS": "2",
}
# Without pytest, whose set-up takes longer than the tests.
PROGRAM = """
import torch
import itertools
from tests.group.test_decoders import off, test_a_pack_has_the_log_probs_and_gradients_of_its_rows as check

for decoder in itertools.filterfalse(off, ("qwen3_5_moe", "gemma3")):
    check(decoder, "left")
# torch 2.8 has another name for it.
print(torch.backends.cpu.get_cpu_capability().replace("NO AVX", "DEFAULT"), torch.get_num_threads())
"""


@pytest.mark.slow
def test_numbers_do_not_depend_on_the_instructions_of_the_processor():
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, **OLDEST},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-4000:]
    assert child.stdout.split() == ["DEFAULT", "2"], "the child is in this mode"
