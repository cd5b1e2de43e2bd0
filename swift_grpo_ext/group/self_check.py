"""Comparison of the log-probs of one micro-batch with the stock path's, for both engines."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from swift_grpo_ext.swap import swapped

# Largest mean and largest single difference where log-probs have seven digits.
EXACT = (1e-4, 5e-3)
# Allowed distance of the paths, in multiples of that between two layouts of the stock path's few rows: on
# average over their tokens, where chance evens out, and for the single token that is furthest off.
_OF_SPREAD = (4.0, 8.0)
_MIXED = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}


Logps = Float[Tensor, "batch keep"]


def compare(
    models: Iterable[nn.Module],
    ours: Callable[[], Logps],
    stock: Callable[[], tuple[Logps, Logps]],
    mask: Shaped[Tensor, "batch keep"],
    dtype: torch.dtype,
) -> str:
    """Reason why our log-probs of some rows cannot be used, in a clause; empty if they can.

    Args:
        models: Whose dropout is off meanwhile.
        ours: Log-probs of the rows by our pass.
        stock: The same by ms-swift's, in two layouts where rounding shows (see `limits`), else twice one.
        mask: True where a log-prob counts.
        dtype: Of the forward.
    """
    with torch.no_grad(), ExitStack() as stack:
        for model in models:
            stack.enter_context(without_dropout(model))
        our_logps = ours()
        alone, paired = stock()
    return mismatch(our_logps, alone, mask, limits(alone, paired, mask, dtype))


def limits(
    alone: Float[Tensor, "batch keep"],
    paired: Float[Tensor, "batch keep"],
    mask: Shaped[Tensor, "batch keep"],
    dtype: torch.dtype,
) -> tuple[float, float]:
    """How far log-probs may be from the stock path's: on average, and at most.

    Below fp32 the order of summation shows: the stock path's log-probs row by row and with
    two rows in a batch are apart. That is the measure, or one rounding where it is larger.
    """
    eps = torch.finfo(dtype).eps
    both = mask.bool() & alone.isfinite() & paired.isfinite()
    if eps < 1e-6 or not both.any():
        return EXACT
    spread = (alone.float() - paired.float()).abs()[both]
    rounding = eps * alone.float().abs()[both]
    mean = _OF_SPREAD[0] * max(float(spread.mean()), float(rounding.mean()))
    largest = _OF_SPREAD[1] * max(float(spread.max()), float(rounding.max()))
    return max(mean, EXACT[0]), max(largest, EXACT[1])


def mismatch(
    ours: Float[Tensor, "batch keep"],
    stock: Float[Tensor, "batch keep"],
    mask: Shaped[Tensor, "batch keep"],
    allowed: tuple[float, float] = EXACT,
) -> str:
    """How far log-probs are apart, in a clause; empty within what `limits` allows."""
    # Where only the stock path's are not finite, there is nothing to compare ours with: they stay.
    difference = (ours.float() - stock.float()).abs()[mask.bool() & stock.isfinite()]
    if not len(difference):
        return ""
    mean = float(difference.mean())
    largest = float(difference.max())
    if mean <= allowed[0] and largest <= allowed[1]:  # NaN is a mismatch
        return ""
    return (
        f"log-probs differ from the stock path's by {mean:.2g} on average, at most {largest:.2g}"
        f" ({allowed[0]:.2g} and {allowed[1]:.2g} would be rounding)"
    )


def forward_dtype(weights: torch.dtype, mixed_precision: str) -> torch.dtype:
    """The coarser of the weights' dtype and of mixed precision: ``no``, ``bf16``, ``fp16`` or ``fp8``."""
    mixed = _MIXED.get(mixed_precision, weights)
    return max(weights, mixed, key=lambda dtype: torch.finfo(dtype).eps)


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """While this is open, nothing in a model draws random numbers, so that two passes can be compared.

    Functional dropout (``dropout(x, p, self.training)``) and NEFTune's hook follow the mode of the module
    around them, so all modules inside the model are in eval mode.
    """
    with ExitStack() as stack:
        for module in model.modules():
            if module.training and module is not model:  # by whose mode the trainer knows that it trains
                stack.enter_context(swapped(module, "training", False))
        yield
