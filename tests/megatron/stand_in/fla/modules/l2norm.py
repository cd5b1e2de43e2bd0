"""Stands in for the L2 norm over channels."""

import torch


def l2norm(x, eps=1e-6):
    """As the kernel: divided by the root of the sum of squares plus ``eps``."""
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + eps)
