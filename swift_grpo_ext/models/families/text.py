"""Language models, and vision-language models of which only the language model can be tried."""

from swift_grpo_ext.models.families.sizes import EXPERTS, HYBRID, ROUTED, SHARED_EXPERT, TEXT
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

FAMILY = Entry(
    stem="",
    frame=None,
    tiny={
        name: Tiny(stem, {"model_type": name, "template": "qwen2_5"}, fields)
        for name, stem, fields in (
            ("deepseek_v3", "DeepseekV3", {**_NO_HEADS, **ROUTED, **_LATENT}),
            ("llama", "Llama", TEXT),
            ("mistral", "Mistral", {**TEXT, "sliding_window": 16}),
            ("qwen3_moe", "Qwen3Moe", {**TEXT, **EXPERTS}),
            ("qwen3_next", "Qwen3Next", {**TEXT, **HYBRID, **SHARED_EXPERT}),
        )
    },
)
# Kimi-VL and Kimi-K2.5; their attention (MLA) is that of DeepSeek-V3, which is tried in their place.
KIMI = Entry(
    stem="kimi",
    frame="norm1",
    not_loaded={
        "kimi_vl": "ms-swift 4.6.0 takes its remote code with transformers < 4.49 only",
        "kimi_k25": "ms-swift 4.6.0 takes it with transformers < 5 only",
    },
)
