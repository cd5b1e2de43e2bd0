"""Random numbers that a training forward draws for each row: completions of one prompt would share them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Settings of language models that their code reads in the forward, without a module for them.
_NOISY_SETTINGS = (
    "attention_dropout",
    "hidden_dropout",
    "activation_dropout",
    "residual_dropout",
    "layerdrop",
)
_RATES = ("p", "drop_prob", "drop_rate")


def noise_in(model: nn.Module) -> str:
    """A module of a model that draws random numbers while it trains, in a clause; empty if none does."""
    return next((f"{kind} {rate:g} in {name or 'the model'}" for name, kind, rate in _noisy(model)), "")


def noise_of_run(args: object, base: PreTrainedModel) -> str:
    """Noise that a run adds outside of modules, in a clause; empty if there is none."""
    alpha = getattr(args, "neftune_noise_alpha", None)
    if alpha:
        return f"NEFTune adds noise to each row (neftune_noise_alpha {alpha:g})"
    for hook in base.get_input_embeddings()._forward_hooks.values():
        name = getattr(hook, "__qualname__", type(hook).__qualname__)
        if "neftune" in name.lower() or "noise" in name.lower():
            return f"the hook {name} adds noise to each row's embeddings"
    config = base.config.get_text_config()
    rates = {name: getattr(config, name, None) for name in _NOISY_SETTINGS}
    return next(
        (f"{name} {rate:g}" for name, rate in rates.items() if isinstance(rate, float) and rate > 0), ""
    )


def _noisy(model: nn.Module) -> Iterator[tuple[str, str, float]]:
    for name, module in model.named_modules():
        kind = type(module).__name__
        if isinstance(module, _DropoutNd):
            kind = "dropout" if kind == "Dropout" else kind
        elif not any(word in kind.lower() for word in ("droppath", "drop_path", "stochasticdepth")):
            continue
        rate = next(
            (value for each in _RATES if isinstance(value := getattr(module, each, None), float)), 0.0
        )
        if rate > 0:
            yield name, kind, rate
