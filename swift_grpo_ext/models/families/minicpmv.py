"""MiniCPM-V: slices of an image; 4.6 before a language model with recurrent layers."""

from swift_grpo_ext.models.family import Entry, Tiling

# transformers' merger calls its layers once for each slice, and each call gathers parameters from all ranks.
_NO_ZERO3 = "ranks of ZeRO-3 would have to encode as many slices each; --deepspeed zero2 where it fits"
# Architecture of the language model by the version in the config of remote code.
_LANGUAGE = {"2.6": "qwen2", "4.0": "llama", "4": "llama", "4.5": "qwen3"}
FAMILY = Entry(
    stem="minicpmv",
    frame="norm1000",
    override=lambda config: {"lacks": {"zero3": _NO_ZERO3}},
    tiling={"minicpmv": Tiling(9, side=448)},  # of remote code: versions before 4.6
    language_type=lambda config: _LANGUAGE.get(str(config.get("version"))),
)
