"""Bytes of activations in bfloat16 with gradient checkpointing, per token and per image patch.

The coefficients were fitted to the live bytes of the real transformers 5.19 modules, run on fake tensors at
the widths of the published models; a test measures them again. They multiply widths, so they hold for any
size of a Qwen2-like language model.
"""

from __future__ import annotations

from dataclasses import dataclass

from swift_grpo_ext.doctor.plan.setting import Setting, Work
from swift_grpo_ext.doctor.plan.shape import ModelShape, VisionShape


@dataclass(frozen=True)
class PerToken:
    """Bytes per token and per unit of width that one recomputed layer needs in its backward pass."""

    hidden: float
    intermediate: float
    kv: float


FULL = PerToken(hidden=19, intermediate=12.3, kv=7.7)
LORA = PerToken(hidden=50.1, intermediate=14.0, kv=4.1)
LORA_WITH_DROPOUT = PerToken(hidden=76.2, intermediate=20.0, kv=4.1)

# Bytes per completion token and vocabulary entry: logits, their log-softmax, and the gradients of both.
LOGITS = 8
CHECKPOINT = 2  # bytes per token and unit of width of a saved layer input
# Vision tower, bytes per patch and unit of width: (hidden, intermediate), forward only and trained.
FROZEN_TOWER = (33.0, 1.6)
TRAINED_TOWER = (38.0, 12.0)
# Ovis2: bytes per visual token and visual word, of the mixture over 65,536 words.
VISUAL_WORDS = 4.1
PIXEL = 4  # pixel_values are float32 until the tower


def prompt_tokens(shape: ModelShape, work: Work) -> int:
    """Tokens of a prompt with its images."""
    return work.text_tokens + work.images * image_tokens(shape, work)


def image_tokens(shape: ModelShape, work: Work) -> int:
    """Tokens of one image."""
    return shape.vision.tokens(work.max_pixels) if shape.vision else 0


def sequence_tokens(shape: ModelShape, work: Work) -> int:
    """Tokens of a prompt and its longest completion."""
    return prompt_tokens(shape, work) + work.completion_tokens


def update_peak(shape: ModelShape, work: Work, setting: Setting) -> float:
    """Most bytes of activations in the forward and backward pass of one micro-batch.

    All layer inputs are saved; beside them live either the logits with their gradients, or the inside of the
    layer that is being recomputed, or, before both, the vision tower.
    """
    tokens = setting.micro_batch * sequence_tokens(shape, work)
    saved = tokens * shape.layers * shape.hidden * CHECKPOINT
    logits = setting.micro_batch * work.completion_tokens * shape.vocab * LOGITS
    masks = 0.0
    if setting.attention == "eager":
        masks = setting.micro_batch * shape.heads * sequence_tokens(shape, work) ** 2 * 10.0
    return max(
        saved + max(logits, layer_peak(shape, work, tokens) + masks), vision_peak(shape, work, setting)
    )


def layer_peak(shape: ModelShape, work: Work, tokens: int) -> float:
    """Bytes inside one recomputed layer during its backward pass."""
    per = FULL if work.full else LORA_WITH_DROPOUT if work.lora_dropout else LORA
    width = per.hidden * shape.hidden + per.intermediate * shape.intermediate + per.kv * shape.kv_width
    return tokens * width


def vision_peak(shape: ModelShape, work: Work, setting: Setting) -> float:
    """Bytes of the vision tower over the images of one micro-batch."""
    vision = shape.vision
    if vision is None:
        return 0
    patches = _patches(shape, vision, work) * setting.micro_batch
    hidden, intermediate = FROZEN_TOWER if work.freeze_vit else TRAINED_TOWER
    layer = patches * (hidden * vision.hidden + intermediate * vision.intermediate)
    saved = 0 if work.freeze_vit else patches * vision.depth * vision.hidden * CHECKPOINT
    words = VISUAL_WORDS * vision.vocabulary * patches / vision.merge**2
    return max(layer, words) + saved


def pixel_values(shape: ModelShape, work: Work, setting: Setting) -> float:
    """Bytes of the images of a rank's generation batch, which stay on the device until it is used up."""
    if shape.vision is None:
        return 0
    completions = setting.micro_batch * setting.accumulation
    return completions * _patches(shape, shape.vision, work) * shape.vision.channels * PIXEL


def _patches(shape: ModelShape, vision: VisionShape, work: Work) -> float:
    return work.images * image_tokens(shape, work) * vision.merge**2
