"""What is set right when the trainer is built: LoRA dropout off, and a note of the patches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swift.arguments.tuner_args import TunerArguments
from swift.utils import get_logger
from torch import nn

from swift_grpo_ext.compat.registry import write_report
from swift_grpo_ext.settings import disabled

logger = get_logger()


class Startup:
    """Mixin of the host's GRPO trainer for what happens once, around its construction."""

    def __init__(self: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        if not disabled("trainer.no_lora_dropout") and not asked_for_dropout(model, sys.argv):
            turned_off = turn_lora_dropout_off(model)
            if turned_off:
                logger.info(
                    f"swift-grpo-ext: LoRA dropout ({TunerArguments.lora_dropout} by the host's default) is "
                    "off: with it the old and the new log-probs of a token come from different networks, and "
                    "half of the tokens are clipped. To keep it: --lora_dropout, or "
                    "SWIFT_GRPO_EXT_DISABLE=trainer.no_lora_dropout."
                )
        super().__init__(model, *args, **kwargs)  # type: ignore[call-arg]
        if self.accelerator.is_main_process:
            write_report(Path(self.args.output_dir))


def asked_for_dropout(model: Any, argv: Sequence[str]) -> bool:
    """The user named a dropout: on the command line, or in the adapter's config as another value."""
    if any(word.partition("=")[0] == "--lora_dropout" for word in argv):
        return True
    configs = getattr(model, "peft_config", {}).values()
    return any(getattr(config, "lora_dropout", None) != TunerArguments.lora_dropout for config in configs)


def turn_lora_dropout_off(model: nn.Module) -> int:
    """Set the dropout of all LoRA layers to 0, in the modules and in the config that is saved with them.

    Returns:
        How many layers had one.
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
