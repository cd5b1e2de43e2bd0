"""The process group of gloo is destroyed at the end of a process, unless it failed."""

import subprocess
import sys

import pytest

SCRIPT = """
import atexit
import torch.distributed as dist

atexit.register(lambda: print("left" if not dist.is_initialized() else "stayed"))  # runs last
from swift_grpo_ext.compat import gloo_exit, registry

assert registry.apply(gloo_exit.fix).state.value == "applied"
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
{end}
"""


@pytest.mark.parametrize(
    ("end", "status", "said"), [("", 0, "left"), ("raise RuntimeError", 1, "stayed")], ids=["well", "failed"]
)
def test_a_process_leaves_its_group_when_it_ends_well(end, status, said):
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(end=end)], capture_output=True, text=True, timeout=300
    )
    # torch 2.8 prints there as well, how many peers it has.
    assert (result.returncode, result.stdout.splitlines()[-1]) == (status, said)
