"""Lets accelerate shard by FSDP2 over gloo: torch can, accelerate's state passes over it on a CPU."""

from functools import wraps

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType


def allow_fsdp():
    """From now on --fsdp means FSDP on a CPU, too (F28)."""
    built = AcceleratorState.__init__

    @wraps(built)
    def with_fsdp(state, *args, fsdp_plugin=None, **kwargs):
        built(state, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None and state.distributed_type == DistributedType.MULTI_CPU:
            state.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            if state._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(state._mixed_precision)
            state.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = with_fsdp
