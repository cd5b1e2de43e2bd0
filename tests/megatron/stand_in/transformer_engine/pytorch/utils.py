"""Stands in for ``SplitAlongDim``: torch.split with copies, so that parts may be changed in place as on a GPU."""

import torch


class SplitAlongDim(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, dim, sizes, squeeze=False):
        ctx.dim, ctx.squeeze = dim, squeeze
        parts = torch.split(tensor, sizes, dim=dim)
        return tuple(part.squeeze(dim).clone() if squeeze else part.clone() for part in parts)

    @staticmethod
    def backward(ctx, *gradients):
        if ctx.squeeze:
            gradients = [gradient.unsqueeze(ctx.dim) for gradient in gradients]
        return torch.cat(gradients, dim=ctx.dim), None, None, None
