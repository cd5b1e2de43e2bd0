"""MiniCPM-V: slices of an image; 4.6 before a language model with recurrent layers."""

from swift_grpo_ext.models.family import Entry

# transformers' merger calls its layers once for each slice, and each call gathers parameters from all ranks.
_NO_ZERO3 = "ranks of ZeRO-3 would have to encode as many slices each; --deepspeed zero2 where it fits"
FAMILY = Entry(
    stem="minicpmv",
    frame="norm1000",
    override=lambda config: {"lacks": {"zero3": _NO_ZERO3}},
)
