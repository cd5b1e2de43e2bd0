"""GRPO without vLLM needs no msgspec, which the host does not declare."""

import subprocess
import sys

WITHOUT_MSGSPEC = """
import sys
sys.modules["msgspec"] = None
import swift.rlhf_trainers
swift.rlhf_trainers.GRPOTrainer
"""


def test_the_trainer_is_imported_without_msgspec():
    done = subprocess.run([sys.executable, "-c", WITHOUT_MSGSPEC], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
