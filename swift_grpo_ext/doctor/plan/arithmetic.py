"""Bytes on one GPU: model states by the ZeRO paper (arXiv 1910.02054), activations, the vLLM engine."""

from swift_grpo_ext.doctor.plan.setting import Machine, ModelShape, Setting, VisionShape, Work
from swift_grpo_ext.group import gpu_memory
from swift_grpo_ext.group.gpu_memory import GIB
from swift_grpo_ext.group.pack_memory import PackShape, chunk_of_logits, pack_bytes, row_bytes

# Activations in bfloat16, as in `group.pack_memory`, and fitted in the same way.
# Bytes per predicted position and vocabulary entry, least and most. Least: 16-bit logits, their log-softmax
# and both gradients. Most: accelerate's copy in 32 bits, and ms-swift's copy divided by the temperature.
LOGITS = (8, 16)
# Vision tower, bytes per patch and unit of width: (hidden, intermediate), forward only, and trained.
FROZEN_TOWER = (33.0, 1.6)
TRAINED_TOWER = (38.0, 12.0)
# Smallest and largest ratio of measured memory to the arithmetic below (tests/device/test_memory.py).
LEAST, MOST = 0.95, 1.12
# Least share of a pack's estimate: its layers are recomputed without their last product, large with LoRA.
WITHOUT_THE_LAST = 0.75
PIXEL = 4  # bytes: pixel_values are float32 up to the tower


def rounded_up(tokens: int) -> int:
    """The next multiple of 256, as used for length options."""
    return -(-tokens // 256) * 256


def prompt_tokens(shape: ModelShape, work: Work) -> int:
    """Tokens of a prompt with its images."""
    return work.text_tokens + (work.images * shape.vision.tokens(work.max_pixels) if shape.vision else 0)


def sequence_tokens(shape: ModelShape, work: Work) -> int:
    """Tokens of a prompt and its longest completion."""
    return prompt_tokens(shape, work) + work.completion_tokens


def update_peak(shape: ModelShape, work: Work, setting: Setting) -> tuple[float, float]:
    """Least and most bytes of activations in the forward and backward pass of one micro-batch.

    Beside all layer inputs there are the logits with gradients, or a recomputed layer, or before, the tower.
    """
    tower, beside = vision_peak(shape, work, setting)
    if setting.shared > 1:
        pack = PackShape(
            shape.text,
            prompt_tokens(shape, work),
            work.completion_tokens,
            work.trained,
            setting.checkpointing,
            spare=setting.stage < 3,
        )
        most = setting.packs * pack_bytes(pack, setting.shared)
        least = WITHOUT_THE_LAST * most
    else:
        tokens = setting.micro_batch * sequence_tokens(shape, work)
        inside = tokens * shape.text.recomputed(work.trained)
        held = row_bytes(shape.text, tokens, work.trained, setting.checkpointing) - inside
        predicted = setting.micro_batch * work.completion_tokens
        logits: list[float] = [factor * predicted * shape.text.vocab for factor in LOGITS]
        if setting.scoring == "chunks":
            logits = [chunk_of_logits(shape.text, predicted)] * 2
        least, most = (held + max(size, inside) for size in logits)
    return LEAST * (beside + max(least, tower)), MOST * (beside + max(most, tower))


def vision_peak(shape: ModelShape, work: Work, setting: Setting) -> tuple[float, float]:
    """Bytes of the vision tower over a micro-batch's images: at its peak, and kept for its backward pass."""
    vision = shape.vision
    if vision is None:
        return 0, 0
    patches = _patches(vision, work, setting)
    hidden, intermediate = FROZEN_TOWER if work.freeze_vit else TRAINED_TOWER
    layer = patches * (hidden * vision.hidden + intermediate * vision.intermediate)
    # Per patch: the input of each layer, and the patch itself.
    saved = 0 if work.freeze_vit else 2 * vision.depth * vision.hidden + PIXEL * vision.channels
    return layer, patches * saved


def pixel_values(shape: ModelShape, work: Work, setting: Setting) -> float:
    """Bytes of the images of a rank's generation batch, which stay on the device until it is used up.

    Our trainer keeps each image once, in host memory.
    """
    if shape.vision is None or setting.scoring == "chunks":
        return 0
    return _patches(shape.vision, work, setting) * setting.accumulation * shape.vision.channels * PIXEL


def _patches(vision: VisionShape, work: Work, setting: Setting) -> float:
    """Patches of the images of one micro-batch."""
    return setting.packs * work.images * vision.tokens(work.max_pixels) * vision.merge**2


# Model states.
SUB_GROUP = (200_000_000, 1_000_000_000)  # sub_group_size of our presets and of ms-swift's, elements


def weight_bytes(shape: ModelShape, setting: Setting, machine: Machine) -> float:
    """Bytes of the policy's 16-bit weights on one GPU."""
    if setting.stage < 3:
        return 2 * shape.total
    return 0 if setting.offload_params else 2 * shape.total / machine.gpus


def gradient_bytes(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    """Bytes of 16-bit gradients on one GPU, including the bucket in which they are reduced."""
    trained = trained_parameters(shape, work)
    offloaded = setting.offload_optimizer_states
    return gpu_memory.gradient_bytes(trained, setting.stage, machine.gpus, setting.bucket, offloaded)


def optimizer_states(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    """Bytes of fp32 weights and Adam's moments on one GPU."""
    trained = trained_parameters(shape, work)
    return gpu_memory.optimizer_bytes(trained, setting.stage, machine.gpus, setting.offload_optimizer_states)


def step_bytes(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> tuple[float, float]:
    """Least and most bytes that the optimizer step allocates: fp32 gradients of a rank (ZeRO-3: a sub-group).

    Without DeepSpeed, the temporaries of Adam's foreach kernels: none when they are fused.
    """
    if setting.offload_optimizer_states:
        return 0, 0
    trained = trained_parameters(shape, work)
    own = trained / machine.gpus
    if setting.stage == 3:
        return 4 * min(own, SUB_GROUP[0]), 4 * min(own, SUB_GROUP[1]) + 2 * own
    return (4 * own, 6 * own) if setting.stage else (0, 2 * trained)


def sync_bytes(shape: ModelShape, setting: Setting) -> float:
    """Bytes of the weights gathered on one GPU at a time while they are sent to the rollout engine.

    ``move_model_batches`` splits only the language model's layers: embeddings are a group, the tower another.
    """
    if setting.rollout == "transformers" or setting.stage < 3:
        return 0
    if not setting.move_model_batches:
        return 2 * shape.total
    layers = -(-shape.text.layers // setting.move_model_batches) * shape.language / shape.text.layers
    return 2 * max(layers, shape.embedding + shape.head, shape.tower + shape.aligner)


def trained_parameters(shape: ModelShape, work: Work) -> int:
    """Number of parameters that the optimizer updates."""
    if not work.full:
        return shape.lora(work.lora_rank)
    language = 0 if work.freeze_llm else shape.language + shape.embedding + shape.head
    return language + shape.tower * (not work.freeze_vit) + shape.aligner * (not work.freeze_aligner)


# At most: activations of vLLM's profile run with the largest image, CUDA graphs, communicators. vLLM prints
# the actual size when it starts.
OVERHEAD = 3 * GIB


def weights(shape: ModelShape, setting: Setting) -> float:
    """Bytes of an engine's 16-bit weights on one of its GPUs."""
    return 2 * shape.total / setting.tensor_parallel


def cache_per_sequence(shape: ModelShape, work: Work, tensor_parallel: int) -> float:
    """Bytes of keys and values of a prompt and its longest completion on one GPU, with at least one head."""
    token = 2 * 2 * shape.text.attending * shape.text.kv / min(tensor_parallel, shape.kv_heads)
    return sequence_tokens(shape, work) * token


def engine_bytes(shape: ModelShape, work: Work, setting: Setting, completions: int) -> float:
    """Most bytes that an engine needs on one GPU for its weights and ``completions`` at a time."""
    cache = completions * cache_per_sequence(shape, work, setting.tensor_parallel)
    return weights(shape, setting) + OVERHEAD + cache
