"""On PYTHONPATH: the processes of ``megatron rlhf``, whoever starts them, run on the CPU."""

import sys
from pathlib import Path

if any(word.endswith("_megatron/rlhf.py") for word in sys.orig_argv):
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import cpu_as_cuda  # noqa: F401  (before anything else imports torch)
