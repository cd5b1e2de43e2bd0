"""Tiny checkpoints of families, by the ``model_type`` of their configs: what tests and examples train.

One file of this folder for each family; nothing outside asks for its name.
"""

from swift_grpo_ext.testing.families import (
    gemma,
    glm4v,
    internvl,
    llava_onevision,
    minicpmv,
    mistral3,
    ovis2,
    qwen2,
    qwen3,
    text,
)
from swift_grpo_ext.testing.families.description import Tiny

_FILES = (qwen2, ovis2, text, gemma, glm4v, internvl, llava_onevision, minicpmv, mistral3, qwen3)
TINY: dict[str, Tiny] = {name: tiny for file in _FILES for name, tiny in file.TINY.items()}
