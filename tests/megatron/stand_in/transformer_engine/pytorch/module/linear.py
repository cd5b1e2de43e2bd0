"""Stands in for linear layers: Megatron's own communication of tensor and sequence parallelism around a plain product.

Kept are the attributes that Megatron's norm of the gradient reads: ``tensor_model_parallel`` and ``partition_dim`` (as in the real one of
every weight, of one that each rank has in full, too) and ``sequence_parallel``. Left out: overlap of communication, accumulation into ``main_grad`` by the product itself.
"""

import torch
import torch.nn.functional as F
from torch import nn

from .base import TransformerEngineBaseModule
from .norm import normalise


def _mark(parameter, dim):
    parameter.tensor_model_parallel = True
    parameter.partition_dim = dim
    parameter.partition_stride = 1


class _Linear(TransformerEngineBaseModule):
    """Sizes of one tensor-parallel rank's part."""

    def __init__(self, in_features, out_features, parallel_mode, tp_size, tp_group, bias, return_bias, fused):
        super().__init__()
        if fused:
            raise RuntimeError("--gradient_accumulation_fusion false is needed on the CPU")
        self.parallel_mode, self.tp_size, self.tp_group = parallel_mode, tp_size, tp_group
        self.in_features = in_features // tp_size if parallel_mode == "row" else in_features
        self.out_features = out_features // tp_size if parallel_mode == "column" else out_features
        self.use_bias, self.return_bias = bias, return_bias


class Linear(_Linear):
    def __init__(
        self,
        in_features,
        out_features,
        sequence_parallel=False,
        fuse_wgrad_accumulation=False,
        tp_group=None,
        tp_size=1,
        get_rng_state_tracker=None,
        init_method=None,
        bias=True,
        return_bias=False,
        parallel_mode=None,
        params_dtype=None,
        device=None,
        rng_tracker_name=None,
        **unused,
    ):
        super().__init__(
            in_features,
            out_features,
            parallel_mode,
            tp_size,
            tp_group,
            bias,
            return_bias,
            fuse_wgrad_accumulation,
        )
        self.sequence_parallel = sequence_parallel and tp_size > 1
        self.weight_names, self.bias_names = ["weight"], ["bias"] if bias else []
        dtype = params_dtype or torch.get_default_dtype()
        init = init_method or (lambda weight: nn.init.normal_(weight, std=0.023))
        shape = (self.out_features, self.in_features)
        self.weight = self.new_parameter(shape, device, dtype, init, get_rng_state_tracker, rng_tracker_name)
        _mark(self.weight, 1 if parallel_mode == "row" else 0)
        self.bias = None
        if bias:
            self.bias = nn.Parameter(torch.zeros(self.out_features, device=device, dtype=dtype))
            if parallel_mode == "column":
                _mark(self.bias, 0)
            elif parallel_mode == "row":
                self.bias.sequence_parallel = sequence_parallel

    def forward(self, x, is_first_microbatch=None, **unused):
        return self.multiply(x)

    def multiply(self, x):
        from megatron.core.tensor_parallel import mappings

        parallel = self.tp_size > 1
        if parallel and self.parallel_mode == "column":
            if self.sequence_parallel:
                x = mappings.gather_from_sequence_parallel_region(x, group=self.tp_group)
            else:
                x = mappings.copy_to_tensor_model_parallel_region(x, group=self.tp_group)
        summed = parallel and self.parallel_mode == "row"
        bias = None if self.return_bias else self.bias
        made = F.linear(x, self.weight, None if summed else bias)
        if summed:
            if self.sequence_parallel:
                made = mappings.reduce_scatter_to_sequence_parallel_region(made, group=self.tp_group)
            else:
                made = mappings.reduce_from_tensor_model_parallel_region(made, group=self.tp_group)
            made = made if bias is None else made + bias
        return (made, self.bias) if self.return_bias else made


class LayerNormLinear(Linear):
    """A norm and a linear layer, one after the other; fused in the real one."""

    def __init__(
        self,
        in_features,
        out_features,
        eps=1e-5,
        normalization="LayerNorm",
        zero_centered_gamma=False,
        sequence_parallel=False,
        return_layernorm_output=False,
        **kwargs,
    ):
        super().__init__(in_features, out_features, sequence_parallel=sequence_parallel, **kwargs)
        self.eps, self.normalization, self.zero_centered_gamma = eps, normalization, zero_centered_gamma
        self.return_layernorm_output = return_layernorm_output
        kind = {"device": self.weight.device, "dtype": self.weight.dtype}
        fill = torch.zeros if zero_centered_gamma else torch.ones
        self.layer_norm_weight = nn.Parameter(fill(in_features, **kind))
        self.layer_norm_weight.sequence_parallel = sequence_parallel
        self.layer_norm_bias = None
        if normalization == "LayerNorm":
            self.layer_norm_bias = nn.Parameter(torch.zeros(in_features, **kind))
            self.layer_norm_bias.sequence_parallel = sequence_parallel

    def forward(self, x, is_first_microbatch=None, **unused):
        normed = normalise(
            x, self.layer_norm_weight, self.layer_norm_bias, self.eps, self.zero_centered_gamma
        )
        made = self.multiply(normed)
        if not self.return_layernorm_output:
            return made
        return (*made, normed) if isinstance(made, tuple) else (made, normed)


class GroupedLinear(_Linear):
    """The experts of one rank, one product each. Megatron dispatches tokens itself: no communication here."""

    def __init__(
        self,
        num_gemms,
        in_features,
        out_features,
        sequence_parallel=False,
        fuse_wgrad_accumulation=False,
        tp_group=None,
        tp_size=1,
        get_rng_state_tracker=None,
        init_method=None,
        bias=True,
        return_bias=False,
        parallel_mode=None,
        params_dtype=None,
        device=None,
        rng_tracker_name=None,
        **unused,
    ):
        super().__init__(
            in_features,
            out_features,
            parallel_mode,
            tp_size,
            tp_group,
            bias,
            return_bias,
            fuse_wgrad_accumulation,
        )
        self.num_gemms = num_gemms
        dtype, shape = params_dtype or torch.get_default_dtype(), (self.out_features, self.in_features)
        for number in range(num_gemms):
            weight = self.new_parameter(
                shape, device, dtype, init_method, get_rng_state_tracker, rng_tracker_name
            )
            _mark(weight, 1 if parallel_mode == "row" else 0)
            setattr(self, f"weight{number}", weight)
            if bias:
                zeros = torch.zeros(self.out_features, device=device, dtype=dtype)
                setattr(self, f"bias{number}", nn.Parameter(zeros))

    def forward(self, x, m_splits, is_first_microbatch=None, **unused):
        adds = self.use_bias and not self.return_bias
        made = [
            F.linear(rows, getattr(self, f"weight{number}"), getattr(self, f"bias{number}") if adds else None)
            for number, rows in enumerate(torch.split(x, list(m_splits)))
        ]
        if self.return_bias:
            return torch.cat(made), [getattr(self, f"bias{number}") for number in range(self.num_gemms)]
        return torch.cat(made)


class LayerNormMLP(nn.Module):
    """A name only: peft asks whether a layer is one."""
