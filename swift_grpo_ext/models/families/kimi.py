"""Kimi-VL and Kimi-K2.5; their attention (MLA) is that of DeepSeek-V3, which is tried in their place."""

from swift_grpo_ext.models.family import Entry

FAMILY = Entry(
    stem="kimi",
    frame="norm1",
    not_loaded={
        "kimi_vl": "ms-swift 4.6.0 takes its remote code with transformers < 4.49 only",
        "kimi_k25": "ms-swift 4.6.0 takes it with transformers < 5 only",
    },
)
