"""Shapes of the models that the benchmarks run.

The published figures are those of the checkpoints' config.json; ``mini`` is a model of 33 M + 10 M parameters
for CPUs. Needs nothing but the standard library.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

PATCHES_PER_TOKEN = 4  # 2 x 2 patches are merged into one token
PATCH_VALUES = 3 * 2 * 14 * 14
WINDOW = 64  # patches that a windowed layer of the tower attends over


@dataclass(frozen=True)
class Shape:
    """Sizes of one model."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    vision_hidden_size: int
    vision_intermediate_size: int
    vision_depth: int
    vision_num_heads: int
    vocab_size: int
    tie_word_embeddings: bool = True
    hybrid: bool = False
    """Three gated delta nets to one layer of attention, as in Qwen3.5."""

    @property
    def layer(self) -> int:
        """Weights of one layer of the language model."""
        key_value = self.hidden_size // self.num_heads * self.num_kv_heads
        attention = 2 * self.hidden_size * (self.hidden_size + key_value)
        return attention + 3 * self.hidden_size * self.intermediate_size

    @property
    def head(self) -> int:
        """Weights of the output layer."""
        return self.hidden_size * self.vocab_size

    @property
    def full_attention_blocks(self) -> int:
        """Blocks of the tower that attend over the whole image: every eighth and the last."""
        return len({*range(7, self.vision_depth, 8), self.vision_depth - 1})


SHAPES: dict[str, Shape] = {
    "tiny": Shape(64, 128, 2, 2, 1, 32, 64, 2, 2, 512),
    "mini": Shape(512, 1536, 11, 8, 2, 320, 860, 6, 8, 448),
    "3b": Shape(2048, 11008, 36, 16, 2, 1280, 3420, 32, 16, 151936),
    "7b": Shape(3584, 18944, 28, 28, 4, 1280, 3420, 32, 16, 152064, tie_word_embeddings=False),
    "72b": Shape(8192, 29568, 80, 64, 8, 1280, 3456, 32, 16, 152064, tie_word_embeddings=False),
}
SHAPES |= {f"{name}-hybrid": replace(SHAPES[name], hybrid=True) for name in ("tiny", "mini", "3b")}
