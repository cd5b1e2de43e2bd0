"""Language models."""

from __future__ import annotations

from swift_grpo_ext.models.families.sizes import EXPERTS, HYBRID, ROUTED, TEXT
from swift_grpo_ext.models.family import Entry, Tiny

_LATENT = {
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
}
_NO_HEADS = {key: value for key, value in TEXT.items() if key != "head_dim"}
_SHARED = {**EXPERTS, "shared_expert_intermediate_size": 32}

FAMILY = Entry(
    stem="",
    frame=None,
    tiny={
        "deepseek_v3": Tiny(
            "DeepseekV3",
            {"model_type": "deepseek_v3", "template": "qwen2_5"},
            {**_NO_HEADS, **ROUTED, **_LATENT},
        ),
        "llama": Tiny("Llama", {"model_type": "llama", "template": "qwen2_5"}, TEXT),
        "mistral": Tiny(
            "Mistral", {"model_type": "mistral", "template": "qwen2_5"}, {**TEXT, "sliding_window": 16}
        ),
        "qwen3_moe": Tiny(
            "Qwen3Moe", {"model_type": "qwen3_moe", "template": "qwen2_5"}, {**TEXT, **EXPERTS}
        ),
        "qwen3_next": Tiny(
            "Qwen3Next", {"model_type": "qwen3_next", "template": "qwen2_5"}, {**TEXT, **HYBRID, **_SHARED}
        ),
    },
)
