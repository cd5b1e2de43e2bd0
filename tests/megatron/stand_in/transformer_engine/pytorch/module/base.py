"""Stands in for the base class of TE's layers: what Megatron reads off a layer, and how a weight is made."""

from contextlib import nullcontext

import torch
from torch import nn


class TransformerEngineBaseModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.fp8_meta = {}
        self.save_original_input = False

    def set_tensor_parallel_group(self, group):
        self.tp_group = group

    def backward_dw(self):
        raise NotImplementedError("delay_wgrad_compute")

    def new_parameter(self, shape, device, dtype, init, tracker, name):
        """A weight, filled by Megatron's function under the random state that it names."""
        parameter = nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))
        if parameter.device.type != "meta" and init is not None:
            states = nullcontext()
            if tracker is not None:
                states = tracker().fork() if name is None else tracker().fork(name)
            with torch.no_grad(), states:
                init(parameter)
        return parameter
