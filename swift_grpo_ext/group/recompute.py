"""Work that a packed forward need not do, or not do again in the backward pass.

Gradient checkpointing computes each layer's forward a second time. Three parts of that work are needless:

- a layer's last product, which no gradient asks for: checkpoints without reentrance stop before it;
- the last layers altogether, as many as fit into half of the memory that sharing prompts has saved;
- the MLP of the last layer for tokens from which nothing is predicted, all of a prompt but its last token.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper

from swift_grpo_ext.group.pack_memory import layers_to_keep, text_sizes_of, way_trained
from swift_grpo_ext.group.shared_prefix import Pack
from swift_grpo_ext.swap import swapped

_CHECKPOINT = "_gradient_checkpointing_func"  # where transformers' layers keep what they call
_PRODUCTS = {"gate_proj", "up_proj", "down_proj"}


@contextmanager
def reduced_compute(decoder: nn.Module, pack: Pack, recompute: bool) -> Iterator[None]:
    """While this is open, a pack is computed without unneeded work.

    ``recompute`` lets layers keep their activations: not where parameters are gathered for each layer.
    """
    layers = list(getattr(decoder, "layers", []))
    with ExitStack() as stack:
        if layers and recompute and torch.is_grad_enabled():
            kept = layers[-_how_many_to_keep(decoder, layers[-1], pack) :]
            stack.enter_context(without_reentrance(layers, kept))
        if layers and not (torch.is_grad_enabled() and _is_computed_again(layers[-1])):
            stack.enter_context(_predicting_only(layers[-1], pack))
        yield


def _how_many_to_keep(decoder: nn.Module, last: nn.Module, pack: Pack) -> int:
    sizes = text_sizes_of(decoder.config)
    rows = pack.batch * pack.seq
    return layers_to_keep(sizes, rows, pack.layout.length, way_trained(last.parameters())) if sizes else 1


def _is_checkpointed(layer: nn.Module) -> bool:
    return bool(getattr(layer, "gradient_checkpointing", False) and layer.training)


def _is_computed_again(layer: nn.Module) -> bool:
    """True if the backward pass recomputes it: by its own checkpointing, or by FSDP's, which wraps it."""
    return isinstance(layer, CheckpointWrapper) or _is_checkpointed(layer)


@contextmanager
def without_reentrance(modules: Iterable[nn.Module], kept: Sequence[nn.Module] = ()) -> Iterator[None]:
    """While this is open, checkpointing is not reentrant, and off for the modules in ``kept``."""
    # ms-swift replaces torch's function by one that ignores ``use_reentrant``.
    checkpoint = inspect.unwrap(torch.utils.checkpoint.checkpoint)
    plain = functools.partial(checkpoint, use_reentrant=False)
    with ExitStack() as stack:
        for module in modules:
            if _is_checkpointed(module) and hasattr(module, _CHECKPOINT):
                swap = ("gradient_checkpointing", False) if module in kept else (_CHECKPOINT, plain)
                stack.enter_context(swapped(module, *swap))
        yield


@contextmanager
def _predicting_only(layer: nn.Module, pack: Pack) -> Iterator[None]:
    """The MLP of the last layer for the tokens that predict; the others get zeros, which nobody reads."""
    mlp = getattr(layer, "mlp", None)
    if mlp is None or _PRODUCTS - {name for name, _ in mlp.named_children()}:  # a mixture of experts
        yield
        return
    whole: Callable[..., Float[Tensor, "1 tokens hidden"]] = mlp.forward
    needed = pack.layout.once("needed", pack.predictor.unique)

    def forward(hidden: Float[Tensor, "1 tokens hidden"]) -> Float[Tensor, "1 tokens hidden"]:
        computed = whole(hidden[:, needed])
        # In the dtype of the result: autocast may change it, and only the CPU's index_copy takes two.
        return computed.new_zeros(hidden.shape).index_copy(1, needed, computed)

    with swapped(mlp, "forward", forward):
        yield
