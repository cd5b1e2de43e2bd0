"""The first value that is not finite: in which tensor, of which rows, on which rank, out of which module."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


def bad_rows(
    values: Shaped[Tensor, " rows *rest"], mask: Shaped[Tensor, " rows *rest"] | None = None
) -> tuple[int, ...]:
    """Rows of ``(batch, ...)`` with a NaN or an infinity where the mask of the same shape is on."""
    bad = ~torch.isfinite(values.detach())
    if mask is not None:
        bad = bad & mask.bool()
    if not bool(bad.any()):
        return ()
    return tuple(bad.reshape(len(bad), -1).any(1).nonzero().flatten().tolist())


def first_bad_module(model: nn.Module, forward: Callable[[], object]) -> str:
    """Run a forward again and name the first module whose output is not finite; empty if none is."""
    bad_modules: list[str] = []

    def look(name: str, module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        tensors = (leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor))
        if not bad_modules and any(tensor.is_floating_point() and _is_bad(tensor) for tensor in tensors):
            bad_modules.append(name or type(module).__name__)

    with ExitStack() as stack, torch.no_grad():
        for name, module in model.named_modules():
            stack.callback(module.register_forward_hook(partial(look, name)).remove)
        forward()
    return "".join(bad_modules)


def _is_bad(tensor: Shaped[Tensor, "..."]) -> bool:
    return not bool(torch.isfinite(tensor).all())
