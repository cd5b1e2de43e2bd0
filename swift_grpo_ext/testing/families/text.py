"""Language models: the kinds of layers that vision-language models are built on, too."""

from swift_grpo_ext.testing.families.description import Tiny
from swift_grpo_ext.testing.families.sizes import EXPERTS, HYBRID, ROUTED, SHARED_EXPERT, TEXT

_LATENT = {
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
}
_NO_HEADS = {key: value for key, value in TEXT.items() if key != "head_dim"}

TINY = {
    name: Tiny(stem, {"model_type": name, "template": "qwen2_5"}, fields)
    for name, stem, fields in (
        ("deepseek_v3", "DeepseekV3", {**_NO_HEADS, **ROUTED, **_LATENT}),
        ("llama", "Llama", TEXT),
        ("mistral", "Mistral", {**TEXT, "sliding_window": 16}),
        ("qwen3_moe", "Qwen3Moe", {**TEXT, **EXPERTS}),
        ("qwen3_next", "Qwen3Next", {**TEXT, **HYBRID, **SHARED_EXPERT}),
    )
}
