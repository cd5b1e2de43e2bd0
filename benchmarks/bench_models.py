"""Random models of the shapes that the benchmarks run, of several families."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_operations import Case, Work
from bench_shapes import Shape

PATCH = {"qwen2_5_vl": 14, "ovis2": 14, "internvl": 14, "qwen3_vl": 16, "qwen3_5": 16}  # pixels of a side
Sizes = dict[str, Any]
Build = Callable[[Shape, Case], tuple[Sizes, Sizes, Sizes]]


def build_checkpoint(
    family: str, shape: Shape, case: Case, folder: Path, device: str = "cpu", dtype: str = "float32"
) -> Path:
    """A random checkpoint of the family and shape, its weights drawn on the device; published shapes have the
    published vocabulary.
    """
    import torch

    from swift_grpo_ext import testing

    height, width = (PATCH[family] * side for side in case.grid)
    text, vision, top = FURTHER[family](shape, case)
    further = {"dtype": dtype, "stock_vocabulary": shape.vocab_size > 100_000}
    with torch.device(device):
        return testing.tiny_checkpoint(
            family,
            folder,
            max_pixels=height * width,
            vision=vision,
            top=top,
            **further,
            **text_sizes(shape),
            **text,
        )


def text_sizes(shape: Shape) -> Sizes:
    """Of the language model, as transformers calls them."""
    return {
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.hidden_size // shape.num_heads,
    }


def _tower(shape: Shape) -> Sizes:
    return {
        "depth": shape.vision_depth,
        "hidden_size": shape.vision_hidden_size,
        "intermediate_size": shape.vision_intermediate_size,
        "num_heads": shape.vision_num_heads,
        "out_hidden_size": shape.hidden_size,
        "num_position_embeddings": 2304,
    }


def _rope(shape: Shape) -> Sizes:
    pairs = shape.hidden_size // shape.num_heads // 2
    sections = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
    return {"rope_type": "default", "rope_theta": 1e6, "mrope_section": sections, "mrope_interleaved": True}


def _qwen3_vl(shape: Shape, _case: Case) -> tuple[Sizes, Sizes, Sizes]:
    deep = {"deepstack_visual_indexes": [0, 2, 4]}
    return {"rope_parameters": _rope(shape)}, {**_tower(shape), **deep}, {}


def _qwen3_5(shape: Shape, _case: Case) -> tuple[Sizes, Sizes, Sizes]:
    """Three gated delta nets to one layer of attention, with heads as wide as the published ones' share."""
    kinds = (["linear_attention"] * 3 + ["full_attention"]) * shape.num_layers
    hybrid = {
        "layer_types": kinds[: shape.num_layers],
        "rope_parameters": {**_rope(shape), "partial_rotary_factor": 1.0},
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "linear_num_key_heads": max(1, shape.hidden_size // 128),
        "linear_num_value_heads": max(1, shape.hidden_size // 64),
    }
    return hybrid, _tower(shape), {}


def _one_tile(shape: Shape, case: Case) -> tuple[int, Sizes]:
    """Side in pixels of one tile that has all tokens of the image, and the tower."""
    vision = {
        "num_hidden_layers": shape.vision_depth,
        "hidden_size": shape.vision_hidden_size,
        "intermediate_size": shape.vision_intermediate_size,
        "num_attention_heads": shape.vision_num_heads,
    }
    return 14 * 2 * int(case.image_tokens**0.5), vision


def _internvl(shape: Shape, case: Case) -> tuple[Sizes, Sizes, Sizes]:
    side, vision = _one_tile(shape, case)
    return {}, {**vision, "image_size": [side, side]}, {"image_seq_length": case.image_tokens}


def _ovis2(shape: Shape, case: Case) -> tuple[Sizes, Sizes, Sizes]:
    side, vision = _one_tile(shape, case)
    return {}, {**vision, "image_size": side}, {}


def _qwen2_5_vl(shape: Shape, _case: Case) -> tuple[Sizes, Sizes, Sizes]:
    names = ("depth", "hidden_size", "intermediate_size", "num_heads")
    return {}, {name: value for name, value in _tower(shape).items() if name in names}, {}


FURTHER: dict[str, Build] = {
    "qwen2_5_vl": _qwen2_5_vl,
    "ovis2": _ovis2,
    "qwen3_vl": _qwen3_vl,
    "qwen3_5": _qwen3_5,
    "internvl": _internvl,
}


_BEHIND_THE_BLOCKS = ("merger", "projector", "head_linear")  # of a tower: what runs once for each token


def counted_work(model: Any) -> Work:
    """Of a model of any family, by its own weights: each multiplies and adds once for a token or a patch."""
    from torch import nn

    from swift_grpo_ext.group.recurrent import recurrent_layers

    decoder = model.get_decoder()
    outside = {id(part) for part in (*decoder.modules(), model.get_output_embeddings())}
    patch = merged = 0
    for name, part in model.named_modules():
        if id(part) in outside or not isinstance(part, (nn.Linear, nn.Conv2d, nn.Conv3d)) or "lora_" in name:
            continue
        if any(behind in name for behind in _BEHIND_THE_BLOCKS):
            merged += part.weight.numel()
        else:
            patch += part.weight.numel()
    tokens = sum(
        part.weight.numel()
        for name, part in decoder.named_modules()
        if isinstance(part, (nn.Linear, nn.Conv1d)) and "lora_" not in name
    )
    recurrent = list(recurrent_layers(decoder))
    # Of each head the state is read, written and read again: arXiv 2412.06464, equation 10.
    states = sum(3 * part.num_v_heads * part.head_k_dim * part.head_v_dim for part in recurrent)
    text = model.config.get_text_config()
    vision = model.config.vision_config
    blocks = getattr(vision, "depth", None) or vision.num_hidden_layers
    full = len(getattr(vision, "fullatt_block_indexes", None) or range(blocks))
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return Work(
        patch=patch,
        merged=merged,
        patch_pair=2 * vision.hidden_size,
        full_blocks=min(full, blocks),
        windowed_blocks=max(0, blocks - full),
        token=tokens + states,
        pair=2 * (text.num_hidden_layers - len(recurrent)) * text.num_attention_heads * head_dim,
        head=model.get_output_embeddings().weight.numel(),
    )
