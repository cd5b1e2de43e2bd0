"""LoRA dropout that nobody asked for is off.

With it the old and the new log-probs of a token come from different networks, and half of the tokens are
clipped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from swift.arguments.tuner_args import TunerArguments
from swift.utils import get_logger
from torch import nn

from swift_grpo_ext.settings import disabled

logger = get_logger()


def turn_off_unasked_dropout(model: object) -> None:
    """Turn ms-swift's default dropout of LoRA off, and say so, unless it was asked for."""
    if disabled("trainer.no_lora_dropout") or asked_for_dropout(model, sys.argv):
        return
    if turn_lora_dropout_off(model):
        logger.info(
            f"swift-grpo-ext: LoRA dropout ({TunerArguments.lora_dropout} by ms-swift's default) is off: "
            "with it the old and the new log-probs of a token come from different networks, and half of the "
            "tokens are clipped. To keep it: --lora_dropout, or "
            "SWIFT_GRPO_EXT_DISABLE=trainer.no_lora_dropout."
        )


def asked_for_dropout(model: object, argv: Sequence[str]) -> bool:
    """The user named a dropout: on the command line, or in the adapter's config as another value."""
    if any(word.partition("=")[0] == "--lora_dropout" for word in argv):
        return True
    configs = getattr(model, "peft_config", {}).values()
    return any(getattr(config, "lora_dropout", None) != TunerArguments.lora_dropout for config in configs)


def turn_lora_dropout_off(model: nn.Module) -> int:
    """Set the dropout of all LoRA layers to 0, in the modules and in the config that is saved with them.

    Returns how many layers had one.
    """
    layers = [
        module
        for name, module in model.named_modules()
        if "lora_dropout" in name and isinstance(module, nn.Dropout) and module.p > 0
    ]
    for layer in layers:
        layer.p = 0.0
    for config in getattr(model, "peft_config", {}).values():
        config.lora_dropout = 0.0
    return len(layers)
