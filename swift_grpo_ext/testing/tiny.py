"""Random-weight checkpoints of many families, of 0.1 to 0.4 million parameters, to train on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_grpo_ext.models.chat_template import chat_template
from swift_grpo_ext.testing.checkpoint import write_checkpoint
from swift_grpo_ext.testing.tokenizer import build_tokenizer, vocabulary_size

QWEN_MEDIA = chat_template(
    image="<|vision_start|><|image_pad|><|vision_end|>", video="<|vision_start|><|video_pad|><|vision_end|>"
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
MAX_PIXELS = 256 * 32 * 32
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


def _qwen2_processor(tokenizer: Any, _config: Any, max_pixels: int) -> Any:
    from transformers import Qwen2VLImageProcessor, Qwen2VLProcessor, Qwen2VLVideoProcessor

    pixels = {"min_pixels": 56 * 56, "max_pixels": max_pixels}
    return Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(**pixels),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**pixels),
        chat_template=QWEN_MEDIA,
    )


def _qwen3_processor(tokenizer: Any, _config: Any, max_pixels: int) -> Any:
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(patch_size=16, min_pixels=32 * 32, max_pixels=max_pixels),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(),
        chat_template=QWEN_MEDIA,
    )


def _internvl_processor(tokenizer: Any, config: Any, _max_pixels: int) -> Any:
    from transformers import AutoTokenizer, GotOcr2ImageProcessor, InternVLProcessor, InternVLVideoProcessor

    side = dict(zip(("height", "width"), config.vision_config.image_size, strict=True))
    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    tokenizer = AutoTokenizer.from_pretrained(tokenizer.name_or_path, extra_special_tokens=named)
    return InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(crop_to_patches=True, max_patches=4, size=side),
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(size=side),
        image_seq_length=config.image_seq_length,
        chat_template=chat_template(image="<IMG_CONTEXT>\\n", video="<video>\\n"),
    )


def _glm_processor(tokenizer: Any, _config: Any, max_pixels: int) -> Any:
    from transformers import Glm4vImageProcessor, Glm4vProcessor, Glm4vVideoProcessor

    size = {"shortest_edge": 56 * 56, "longest_edge": max_pixels}
    return Glm4vProcessor(
        image_processor=Glm4vImageProcessor(size=size),
        tokenizer=tokenizer,
        video_processor=Glm4vVideoProcessor(size=size),
        chat_template=chat_template(
            image="<|begin_of_image|><|image|><|end_of_image|>",
            video="<|begin_of_video|><|video|><|end_of_video|>",
        ),
    )


def _gemma_processor(tokenizer: Any, config: Any, _max_pixels: int) -> Any:
    from transformers import AutoTokenizer, Gemma3ImageProcessor, Gemma3Processor

    side = config.vision_config.image_size
    named = {
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    }
    return Gemma3Processor(
        image_processor=Gemma3ImageProcessor(size={"height": side, "width": side}),
        tokenizer=AutoTokenizer.from_pretrained(tokenizer.name_or_path, extra_special_tokens=named),
        image_seq_length=config.mm_tokens_per_image,
        chat_template=chat_template(image="<start_of_image>"),
    )


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

FAMILIES: dict[str, Tiny] = {
    "glm4v_moe": Tiny(
        "Glm4vMoe",
        ("glm4v_moe", "glm4_5v"),
        {**_TEXT, **_ROUTED, "rope_parameters": {**_ROPE, "partial_rotary_factor": 1.0}},
        {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64},
        _GLM_IDS,
        (*_GLM_TURNS, *_GLM_IDS.values()),
        processor=_glm_processor,
    ),
    "gemma3": Tiny(
        "Gemma3",
        ("gemma3_vision", "gemma3_vision"),
        {**_TEXT, "num_hidden_layers": 3, "sliding_window": 12, "sliding_window_pattern": 2},
        _SIGLIP,
        _GEMMA_IDS,
        ("<bos>", "<start_of_turn>", "<end_of_turn>", *_GEMMA_IDS.values()),
        {"mm_tokens_per_image": 4},
        _gemma_processor,
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
        processor=_qwen2_processor,
    ),
    "qwen3_vl": Tiny(
        "Qwen3VL",
        ("qwen3_vl", "qwen3_vl"),
        {**_TEXT, "rope_parameters": _INTERLEAVED},
        _DEEPSTACK,
        _QWEN_IDS,
        processor=_qwen3_processor,
    ),
    "qwen3_vl_moe": Tiny(
        "Qwen3VLMoe",
        ("qwen3_vl_moe", "qwen3_vl"),
        {**_TEXT, **_EXPERTS, "rope_parameters": _INTERLEAVED},
        _DEEPSTACK,
        _QWEN_IDS,
        processor=_qwen3_processor,
    ),
    "qwen3_5": Tiny(
        "Qwen3_5",
        ("qwen3_5", "qwen3_5"),
        {**_TEXT, **_HYBRID},
        _QWEN3_TOWER,
        _QWEN_IDS,
        top={"tie_word_embeddings": True},
        processor=_qwen3_processor,
    ),
    "qwen3_5_moe": Tiny(
        "Qwen3_5Moe",
        ("qwen3_5_moe", "qwen3_5"),
        {**_TEXT, **_HYBRID, **_EXPERTS, "shared_expert_intermediate_size": 32},
        _QWEN3_TOWER,
        _QWEN_IDS,
        processor=_qwen3_processor,
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
        _internvl_processor,
    ),
    "llama": Tiny("Llama", ("llama", "qwen2_5"), _TEXT),
    "mistral": Tiny("Mistral", ("mistral", "qwen2_5"), {**_TEXT, "sliding_window": 16}),
    "qwen3_moe": Tiny("Qwen3Moe", ("qwen3_moe", "qwen2_5"), {**_TEXT, **_EXPERTS}),
}


def tiny_checkpoint(
    family: str,
    path: str | Path,
    *,
    seed: int = 0,
    dtype: str = "float32",
    vision: Mapping[str, Any] | None = None,
    top: Mapping[str, Any] | None = None,
    max_pixels: int = MAX_PIXELS,
    **text: Any,
) -> Path:
    """Write a complete checkpoint of a random model.

    Args:
        family: A key of `FAMILIES`.
        path: Folder to write; made if missing.
        seed: Seed of the weights.
        dtype: Name of the torch dtype of the weights.
        vision: Fields of the tower's config that are other than tiny.
        top: Other fields of the config.
        max_pixels: Most pixels of a resized image, where the processor resizes.
        **text: Fields of the language model's config, such as ``num_hidden_layers=4``.

    Returns:
        The folder.
    """
    import transformers

    made, folder = FAMILIES[family], Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer(folder, made.tokens)
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in made.ids.items()}
    common = {
        "vocab_size": vocabulary_size(tokenizer, stock=False),
        "bos_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    of_text = {**common, **made.text, **text}
    kind = "ForConditionalGeneration" if made.vision else "ForCausalLM"
    of_vision = {**made.vision, **(vision or {})}
    fields = {"text_config": of_text, "vision_config": of_vision, **ids} if made.vision else of_text
    config = getattr(transformers, f"{made.stem}Config")(
        **{**fields, **made.top, **(top or {}), "architectures": [made.stem + kind]}
    )
    model_class = getattr(transformers, made.stem + kind)
    processor = made.processor(tokenizer, config, max_pixels) if made.processor else tokenizer
    return write_checkpoint(folder, model_class, config, processor, seed=seed, dtype=dtype)
