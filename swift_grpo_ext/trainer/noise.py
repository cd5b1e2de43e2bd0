"""Random numbers that a training forward draws for each row, which completions of one prompt would share.

LoRA dropout that nobody asked for is off: with it the old and the new log-probs of a token come from
different networks, and half of the tokens are clipped.
"""

import re
import sys
from collections.abc import Sequence

from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from transformers import PretrainedConfig, PreTrainedModel, TrainingArguments

from swift_grpo_ext.ms_swift.shared import TunerArguments, get_logger
from swift_grpo_ext.settings import disabled

# Rates in a config by which a forward is noisy, often without a module: dropout, resid_pdrop, layerdrop,
# drop_path_rate, router_jitter_noise; and those of heads that a language model does not have.
_NOISE = re.compile(r"drop|jitter")
_OF_HEADS = re.compile(r"classif|summary|pooler|qa_")


def noise_in(model: nn.Module) -> str:
    """A module of a model that draws random numbers while it trains, in a clause; empty if none does."""
    for name, module in model.named_modules():
        kind = type(module).__name__
        paths = any(word in kind.lower() for word in ("droppath", "drop_path", "stochasticdepth"))
        if paths or isinstance(module, _DropoutNd):
            values = (getattr(module, rate, None) for rate in ("p", "drop_prob", "drop_rate"))
            rate = next((value for value in values if isinstance(value, float)), 0.0)
            if rate > 0:
                return f"{'dropout' if kind == 'Dropout' else kind} {rate:g} in {name or 'the model'}"
    return ""


def noise_of_run(args: TrainingArguments, base: PreTrainedModel) -> str:
    """Noise that a run adds outside of modules, in a clause; empty without any."""
    if alpha := getattr(args, "neftune_noise_alpha", None):
        return f"NEFTune adds noise to each row (neftune_noise_alpha {alpha:g})"
    return noise_in_config(base.config.get_text_config())


def noise_in_config(config: PretrainedConfig) -> str:
    """A rate in a config, or in one inside of it, by which a forward in training is noisy; else empty."""
    rates: dict[str, object] = vars(config)
    for name, rate in rates.items():
        if isinstance(rate, PretrainedConfig) and (inner := noise_in_config(rate)):
            return inner
        if isinstance(rate, float) and rate > 0 and _NOISE.search(name) and not _OF_HEADS.search(name):
            return f"{name} {rate:g}"
    return ""


def turn_off_unasked_dropout(model: nn.Module, part: str = "trainer") -> None:
    """Turn ms-swift's default dropout of LoRA off, and say so, unless it was asked for in this part."""
    if disabled(f"{part}.no_lora_dropout") or asked_for_dropout(model, sys.argv):
        return
    if turn_lora_dropout_off(model):
        get_logger().info(
            f"swift-grpo-ext: LoRA dropout ({TunerArguments.lora_dropout} by ms-swift's default) is off: "
            "with it the old and the new log-probs of a token come from different networks, and half of the "
            "tokens are clipped. To keep it: --lora_dropout, or "
            f"SWIFT_GRPO_EXT_DISABLE={part}.no_lora_dropout."
        )


def asked_for_dropout(model: nn.Module, argv: Sequence[str]) -> bool:
    """The user named a dropout: on the command line, or in the adapter's config as another value."""
    if any(word.partition("=")[0] == "--lora_dropout" for word in argv):
        return True
    configs = getattr(model, "peft_config", {}).values()
    return any(getattr(config, "lora_dropout", None) != TunerArguments.lora_dropout for config in configs)


def turn_lora_dropout_off(model: nn.Module) -> int:
    """Set the dropout of all LoRA layers, and in the config that is saved, to 0; how many layers had one."""
    named = (module for name, module in model.named_modules() if "lora_dropout" in name)
    layers = [module for module in named if isinstance(module, nn.Dropout) and module.p > 0]
    for layer in layers:
        layer.p = 0.0
    for config in getattr(model, "peft_config", {}).values():
        config.lora_dropout = 0.0
    return len(layers)
