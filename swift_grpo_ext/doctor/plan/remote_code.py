"""Models whose own class is remote code: the language model by transformers, the tower by arithmetic.

Remote code is never run. Its config.json holds the language model's configuration: as a block with a type
that transformers knows (Kimi-VL), or beside the tower's (MiniCPM-V, whose type says nothing of it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BLOCKS = ("text_config", "llm_config", "language_config")
# Architecture of the language model by the version in MiniCPM-V's own config.
_MINICPM = {"2.6": "qwen2", "4.0": "llama", "4": "llama", "4.5": "qwen3"}


def language_config(config: Mapping[str, object]) -> dict[str, object] | None:
    """Configuration of the language model; None where none is found."""
    for name in _BLOCKS:
        block = config.get(name)
        if isinstance(block, dict) and block.get("model_type"):
            return dict(block)
    kind = _MINICPM.get(str(config.get("version"))) if config.get("model_type") == "minicpmv" else None
    if kind is None:
        return None
    vision = ("vision_config", "slice_config", "auto_map", "architectures")
    return {**{key: value for key, value in config.items() if key not in vision}, "model_type": kind}


def tower(config: Mapping[str, Any], text_width: int) -> tuple[int, int]:
    """Parameters of a transformer tower and of the aligner behind it: two layers, or a resampler."""
    vision = config["vision_config"]
    width, depth = int(vision["hidden_size"]), int(vision["num_hidden_layers"])
    inner, patch = int(vision.get("intermediate_size") or 4 * width), int(vision.get("patch_size") or 14)
    layers = depth * (4 * width**2 + 2 * width * inner + 13 * width)
    stem = 3 * patch**2 * width
    if config.get("query_num"):  # attention of learned queries, and a projection
        return layers + stem, 5 * text_width**2 + width * text_width
    merged = width * _merge(vision) ** 2
    return layers + stem, merged**2 + merged * text_width


def _merge(vision: Mapping[str, object]) -> int:
    kernel = vision.get("merge_kernel_size")
    return int(kernel[0]) if isinstance(kernel, (list, tuple)) and kernel else 1
