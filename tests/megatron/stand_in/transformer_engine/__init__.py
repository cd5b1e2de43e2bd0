"""A stand-in for NVIDIA's transformer_engine in plain PyTorch, for tests on a machine without CUDA.

docs/megatron.md lists what it takes the place of, and what runs with it therefore do not prove. The version decides what
Megatron asks for: from 2.3 on rope is imported from ``attention.rope``, from 2.7 on more modules are used.
"""

__version__ = "2.6.0"

from . import common, pytorch  # noqa: F401
