"""The families that a tiny checkpoint can be made of: one entry each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from swift_grpo_ext.testing.tiny_processors import (
    gemma_processor,
    glm_processor,
    internvl_processor,
    qwen2_processor,
    qwen3_processor,
)

_QWEN_IDS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}
_TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
_ROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2]}
_INTERLEAVED = {**_ROPE, "mrope_interleaved": True}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_HYBRID: dict[str, Any] = {
    "num_hidden_layers": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "rope_parameters": {**_INTERLEAVED, "partial_rotary_factor": 1.0},
}
_QWEN3_TOWER = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 256,
}
_DEEPSTACK = {**_QWEN3_TOWER, "deepstack_visual_indexes": [0, 1]}
_GLM_IDS = {
    "image_token_id": "<|image|>",
    "video_token_id": "<|video|>",
    "image_start_token_id": "<|begin_of_image|>",
    "image_end_token_id": "<|end_of_image|>",
    "video_start_token_id": "<|begin_of_video|>",
    "video_end_token_id": "<|end_of_video|>",
}
_GLM_TURNS = ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
_GEMMA_IDS = {
    "image_token_index": "<image_soft_token>",
    "boi_token_index": "<start_of_image>",
    "eoi_token_index": "<end_of_image>",
}
_LATENT = {
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
}
_ROUTED = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_SIGLIP = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "image_size": 56,
    "patch_size": 14,
}
Processor = Callable[[Any, Any, int], Any]  # of tokenizer, config, and the most pixels of an image


@dataclass(frozen=True)
class Tiny:
    """How a family's tiny checkpoint is made.

    Attributes:
        stem: Of transformers' classes: ``<stem>Config`` and ``<stem>ForConditionalGeneration``.
        host: ms-swift's ``--model_type`` and ``--template``.
        text: Of the language model's config.
        vision: Of the tower's config; empty for a language model.
        ids: Fields of the config that are ids, with their tokens.
        tokens: Special tokens that the tokenizer has beside Qwen's.
        top: Other fields of the config.
        processor: Makes the processor of a tokenizer; None for a language model.
    """

    stem: str
    host: tuple[str, str]
    text: dict[str, Any] = field(default_factory=dict)
    vision: dict[str, Any] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    tokens: tuple[str, ...] = ()
    top: dict[str, Any] = field(default_factory=dict)
    processor: Processor | None = None


FAMILIES: dict[str, Tiny] = {
    "glm4v_moe": Tiny(
        "Glm4vMoe",
        ("glm4v_moe", "glm4_5v"),
        {**_TEXT, **_ROUTED, "rope_parameters": {**_ROPE, "partial_rotary_factor": 1.0}},
        {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64},
        _GLM_IDS,
        (*_GLM_TURNS, *_GLM_IDS.values()),
        processor=glm_processor,
    ),
    "gemma3": Tiny(
        "Gemma3",
        ("gemma3_vision", "gemma3_vision"),
        {**_TEXT, "num_hidden_layers": 3, "sliding_window": 12, "sliding_window_pattern": 2},
        _SIGLIP,
        _GEMMA_IDS,
        ("<bos>", "<start_of_turn>", "<end_of_turn>", *_GEMMA_IDS.values()),
        {"mm_tokens_per_image": 4},
        gemma_processor,
    ),
    "deepseek_v3": Tiny(
        "DeepseekV3",
        ("deepseek_v3", "qwen2_5"),
        {key: value for key, value in {**_TEXT, **_ROUTED, **_LATENT}.items() if key != "head_dim"},
    ),
    "qwen2_vl": Tiny(
        "Qwen2VL",
        ("qwen2_vl", "qwen2_vl"),
        {**_TEXT, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
        {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
        _QWEN_IDS,
        processor=qwen2_processor,
    ),
    "qwen3_vl": Tiny(
        "Qwen3VL",
        ("qwen3_vl", "qwen3_vl"),
        {**_TEXT, "rope_parameters": _INTERLEAVED},
        _DEEPSTACK,
        _QWEN_IDS,
        processor=qwen3_processor,
    ),
    "qwen3_vl_moe": Tiny(
        "Qwen3VLMoe",
        ("qwen3_vl_moe", "qwen3_vl"),
        {**_TEXT, **_EXPERTS, "rope_parameters": _INTERLEAVED},
        _DEEPSTACK,
        _QWEN_IDS,
        processor=qwen3_processor,
    ),
    "qwen3_5": Tiny(
        "Qwen3_5",
        ("qwen3_5", "qwen3_5"),
        {**_TEXT, **_HYBRID},
        _QWEN3_TOWER,
        _QWEN_IDS,
        top={"tie_word_embeddings": True},
        processor=qwen3_processor,
    ),
    "qwen3_5_moe": Tiny(
        "Qwen3_5Moe",
        ("qwen3_5_moe", "qwen3_5"),
        {**_TEXT, **_HYBRID, **_EXPERTS, "shared_expert_intermediate_size": 32},
        _QWEN3_TOWER,
        _QWEN_IDS,
        processor=qwen3_processor,
    ),
    "internvl": Tiny(
        "InternVL",
        ("internvl", "internvl_hf"),
        {**_TEXT, "model_type": "qwen2", "tie_word_embeddings": False},
        {
            "num_hidden_layers": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_attention_heads": 2,
            "image_size": [56, 56],
            "patch_size": [14, 14],
        },
        {"image_token_id": "<IMG_CONTEXT>"},
        ("<img>", "</img>", "<IMG_CONTEXT>", "<video>"),
        {"image_seq_length": 4},
        internvl_processor,
    ),
    "llama": Tiny("Llama", ("llama", "qwen2_5"), _TEXT),
    "mistral": Tiny("Mistral", ("mistral", "qwen2_5"), {**_TEXT, "sliding_window": 16}),
    "qwen3_moe": Tiny("Qwen3Moe", ("qwen3_moe", "qwen2_5"), {**_TEXT, **_EXPERTS}),
}
