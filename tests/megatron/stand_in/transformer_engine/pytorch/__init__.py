"""Stands in for ``transformer_engine.pytorch``.

Left out on purpose are ``optimizers``, ``cross_entropy``, ``cpp_extensions``, ``permutation``, ``cpu_offload``, ``graph`` and ``router``:
Megatron has a way of its own without each of them.
"""

from . import attention, distributed, float8_tensor, fp8, module, ops, tensor, utils  # noqa: F401
from .attention import DotProductAttention  # noqa: F401
from .distributed import checkpoint  # noqa: F401
from .fp8 import fp8_autocast, fp8_model_init  # noqa: F401
from .module import GroupedLinear, LayerNorm, LayerNormLinear, LayerNormMLP, Linear, RMSNorm  # noqa: F401
