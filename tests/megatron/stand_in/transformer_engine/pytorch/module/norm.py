"""Stands in for RMSNorm and LayerNorm: arithmetic in float32; a zero-centered weight counts from 1."""

import torch
import torch.nn.functional as F
from torch import nn


class _Norm(nn.Module):
    has_bias = False

    def __init__(
        self,
        normalized_shape=None,
        eps=1e-5,
        sequence_parallel=False,
        zero_centered_gamma=False,
        params_dtype=None,
        dtype=None,
        device=None,
        hidden_size=None,  # as Megatron up to 0.16 names it
        **unused,
    ):
        super().__init__()
        size = normalized_shape or hidden_size
        kind = {"dtype": params_dtype or dtype or torch.get_default_dtype(), "device": device}
        self.eps, self.zero_centered_gamma = eps, zero_centered_gamma
        fill = torch.zeros if zero_centered_gamma else torch.ones
        self.weight = nn.Parameter(fill(size, **kind))
        self.weight.sequence_parallel = sequence_parallel
        if self.has_bias:
            self.bias = nn.Parameter(torch.zeros(size, **kind))
            self.bias.sequence_parallel = sequence_parallel

    def reset_parameters(self):
        with torch.no_grad():
            self.weight.fill_(0.0 if self.zero_centered_gamma else 1.0)
            if self.has_bias:
                self.bias.zero_()

    def forward(self, x):
        return normalise(x, self.weight, getattr(self, "bias", None), self.eps, self.zero_centered_gamma)


class RMSNorm(_Norm):
    pass


class LayerNorm(_Norm):
    has_bias = True


def normalise(x, weight, bias, eps, zero_centered):
    """LayerNorm where there is a bias, RMSNorm where there is none."""
    weight = weight + 1 if zero_centered else weight
    high = x.float()
    if bias is not None:
        return F.layer_norm(high, (x.shape[-1],), weight.float(), bias.float(), eps).to(x.dtype)
    high = high * torch.rsqrt(high.pow(2).mean(-1, keepdim=True) + eps)
    return (high * weight.float()).to(x.dtype)
