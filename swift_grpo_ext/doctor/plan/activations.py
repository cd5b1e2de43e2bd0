"""Bytes of activations in bfloat16, least and most, of one micro-batch; fitted as in `group.pack_memory`."""

from swift_grpo_ext.doctor.plan.setting import ModelShape, Scoring, Setting, VisionShape, Work
from swift_grpo_ext.group.pack_memory import PackShape, chunk_of_logits, pack_bytes, row_bytes

# Bytes per predicted position and vocabulary entry, least and most. Least: 16-bit logits, their log-softmax
# and both gradients. Most: accelerate's copy in 32 bits, ms-swift's copy divided by the temperature, and of
# the cross entropy the shifted copy.
LOGITS: dict[Scoring, tuple[float, float]] = {"logits": (8, 16), "cross_entropy": (8, 22)}
# Vision tower, bytes per patch and unit of width: (hidden, intermediate), forward only, trained with
# checkpoints, and what a layer keeps without them.
FROZEN_TOWER = (33.0, 1.6)
TRAINED_TOWER = (38.0, 12.0)
KEPT_TOWER = (36.0, 10.0)
# Ovis2: bytes per visual token and visual word, of the mixture over 65,536 words.
VISUAL_WORDS = 4.1
PIXEL = 4  # pixel_values are float32 until the tower


def prompt_tokens(shape: ModelShape, work: Work) -> int:
    """Tokens of a prompt with its images."""
    return work.text_tokens + (work.images * shape.vision.tokens(work.max_pixels) if shape.vision else 0)


def sequence_tokens(shape: ModelShape, work: Work) -> int:
    """Tokens of a prompt and its longest completion."""
    return prompt_tokens(shape, work) + work.completion_tokens


def forwarded_tokens(shape: ModelShape, work: Work, setting: Setting) -> int:
    """Tokens that one rank forwards for one generation batch, in one pass."""
    completions = setting.micro_batch * setting.accumulation
    prompts = -(-completions // setting.shared)
    return prompts * prompt_tokens(shape, work) + completions * work.completion_tokens


def update_peak(shape: ModelShape, work: Work, setting: Setting) -> tuple[float, float]:
    """Least and most bytes of activations in the forward and backward pass of one micro-batch.

    Beside all layer inputs live the logits with gradients, or a recomputed layer, or, before both, the tower.
    """
    tower, beside = vision_peak(shape, work, setting)
    predicted = setting.micro_batch * work.completion_tokens
    if setting.shared > 1:
        together = min(setting.shared, setting.micro_batch)
        packs = -(-setting.micro_batch // setting.shared) * pack_bytes(
            pack_shape(shape, work, setting), together
        )
        return beside + max(packs, tower), 1.1 * (beside + max(packs, tower))
    tokens = setting.micro_batch * sequence_tokens(shape, work)
    inside = tokens * shape.text.recomputed(work.trained)
    held = row_bytes(shape.text, tokens, work.trained, setting.checkpointing) - inside
    if setting.attention == "eager":  # masks
        inside += setting.micro_batch * shape.heads * sequence_tokens(shape, work) ** 2 * 10.0
    least, most = (max(held + max(size, inside), tower) for size in _logits(shape, predicted, setting))
    return beside + least, 1.1 * (beside + most)


def _logits(shape: ModelShape, predicted: float, setting: Setting) -> tuple[float, float]:
    """Least and most bytes from hidden states to log-probs and back."""
    chunk = chunk_of_logits(shape.text, predicted)
    if setting.scoring == "chunks":
        return chunk, chunk
    if setting.scoring == "liger":  # it makes the output layer's gradient in the forward pass
        return chunk, chunk + 4 * shape.text.vocab * shape.text.hidden
    least, most = (each * predicted * shape.text.vocab for each in LOGITS[setting.scoring])
    return least, most


def pack_shape(shape: ModelShape, work: Work, setting: Setting) -> PackShape:
    """A micro-batch whose completions share their prompt."""
    return PackShape(
        shape.text,
        prompt_tokens(shape, work),
        work.completion_tokens,
        work.trained,
        setting.checkpointing,
        spare=setting.stage < 3,
    )


def vision_peak(shape: ModelShape, work: Work, setting: Setting) -> tuple[float, float]:
    """Bytes of the vision tower over the images of one micro-batch: inside it, and kept for its backward."""
    vision = shape.vision
    if vision is None:
        return 0, 0
    images = -(-setting.micro_batch // setting.shared)
    patches = _patches(vision, work) * images
    hidden, intermediate = FROZEN_TOWER if work.freeze_vit else TRAINED_TOWER
    layer = patches * (hidden * vision.hidden + intermediate * vision.intermediate)
    kept = 2.0 * vision.hidden
    if not setting.vit_checkpointing:
        kept = KEPT_TOWER[0] * vision.hidden + KEPT_TOWER[1] * vision.intermediate
    saved = 0.0 if work.freeze_vit else patches * vision.depth * kept
    words = VISUAL_WORDS * vision.vocabulary * patches / vision.merge**2
    return max(layer, words), saved


def pixel_values(shape: ModelShape, work: Work, setting: Setting) -> float:
    """Bytes of the images of a rank's generation batch, which stay on the device until it is used up."""
    if shape.vision is None:
        return 0
    completions = setting.micro_batch * setting.accumulation
    return completions * _patches(shape.vision, work) * shape.vision.channels * PIXEL


def _patches(vision: VisionShape, work: Work) -> float:
    return work.images * vision.tokens(work.max_pixels) * vision.merge**2
