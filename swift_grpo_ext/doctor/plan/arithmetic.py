"""Bytes on one GPU: of model states after the ZeRO paper (arXiv 1910.02054), activations, the vLLM engine."""

import math

from swift_grpo_ext.doctor.plan.setting import Machine, ModelShape, Scoring, Setting, VisionShape, Work
from swift_grpo_ext.group import gpu_memory
from swift_grpo_ext.group.gpu_memory import GIB
from swift_grpo_ext.group.pack_memory import PackShape, chunk_of_logits, pack_bytes, row_bytes

# Activations in bfloat16, as in `group.pack_memory`, and fitted in the same way.
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


def rounded_up(tokens: int) -> int:
    """The next multiple of 256, as lengths are given."""
    return -(-tokens // 256) * 256


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
        pack = pack_shape(shape, work, setting)
        packs = -(-setting.micro_batch // setting.shared) * pack_bytes(pack, together)
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
    least, most = (factor * predicted * shape.text.vocab for factor in LOGITS[setting.scoring])
    return least, most


def pack_shape(shape: ModelShape, work: Work, setting: Setting) -> PackShape:
    """A micro-batch whose completions share their prompt."""
    tokens = (prompt_tokens(shape, work), work.completion_tokens)
    return PackShape(shape.text, *tokens, work.trained, setting.checkpointing, spare=setting.stage < 3)


def vision_peak(shape: ModelShape, work: Work, setting: Setting) -> tuple[float, float]:
    """Bytes of the vision tower over the images of one micro-batch: inside it, and kept for its backward."""
    vision = shape.vision
    if vision is None:
        return 0, 0
    patches = _patches(vision, work) * -(-setting.micro_batch // setting.shared)
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


# Model states.
SUB_GROUP = (200_000_000, 1_000_000_000)  # sub_group_size of our presets and of ms-swift's, elements


def whole_weights(shape: ModelShape, bits: int) -> tuple[float, float]:
    """Bytes of all weights as they are loaded, least (the tower shrinks, too) and most.

    bitsandbytes shrinks linear layers: to 8 bits, or to 4 and 0.5 for the scales of their blocks; not experts
    that are one tensor.
    """
    if bits >= 16:
        return 2 * shape.total, 2 * shape.total
    small = {8: 1.0, 4: 0.52}[bits]
    linear = shape.in_linears
    rest = shape.total - linear
    return small * (linear + shape.tower) + 2 * (rest - shape.tower), 1.1 * small * linear + 2 * rest


def weight_bytes(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> tuple[float, float]:
    """Weights of the policy on one GPU, the second copy of hpZ included."""
    whole = whole_weights(shape, work.bits)
    if setting.stage < 3:
        return whole
    share = 0.0 if setting.offload_params else 1 / setting.train_gpus(machine)
    share += 1 / setting.ranks_per_node(machine) if setting.hpz else 0
    return share * whole[0] + 2 * shape.small, share * whole[1] + 2 * shape.small


def gradient_bytes(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    """16-bit gradients on one GPU, the bucket that they are reduced in included."""
    return gpu_memory.gradient_bytes(
        trained_parameters(shape, work),
        setting.stage,
        setting.train_gpus(machine),
        setting.bucket,
        setting.offload_optimizer_states,
    )


def optimizer_states(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    """fp32 weights and Adam's moments on one GPU."""
    return gpu_memory.optimizer_bytes(
        trained_parameters(shape, work),
        setting.stage,
        setting.train_gpus(machine),
        setting.offload_optimizer_states,
    )


def step_bytes(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> tuple[float, float]:
    """What the optimizer step makes, least and most: fp32 gradients, of a rank or in ZeRO-3 a sub-group.

    Without DeepSpeed, what Adam's kernels over all tensors at once put between: nothing when they are fused.
    """
    if setting.offload_optimizer_states:
        return 0, 0
    if setting.stage == 0:
        return 0, 2 * trained_parameters(shape, work)
    own = trained_parameters(shape, work) / setting.train_gpus(machine)
    if setting.stage == 3:
        return 4 * min(own, SUB_GROUP[0]), 4 * min(own, SUB_GROUP[1]) + 2 * own
    return 4 * own, 6 * own


def sync_bytes(shape: ModelShape, setting: Setting) -> float:
    """Weights that are whole on one GPU at one time while they are sent to the rollout engine.

    ``move_model_batches`` cuts layers of the language model only: embeddings are a group, the tower another.
    """
    flat = 2 * 512e6 if setting.rollout == "server" else 0  # a bucket and its source
    if setting.rollout == "transformers" or setting.stage < 3:
        return flat
    if not setting.move_model_batches:
        return 2 * shape.total + flat
    layers = -(-shape.text.layers // setting.move_model_batches) * shape.language / shape.text.layers
    return 2 * max(layers, shape.embedding + shape.head, shape.tower + shape.aligner) + flat


def trained_parameters(shape: ModelShape, work: Work) -> int:
    """Parameters that the optimizer sees."""
    if not work.full:
        return shape.lora(work.lora_rank)
    language = 0 if work.freeze_llm else shape.language + shape.embedding + shape.head
    tower = 0 if work.freeze_vit else shape.tower
    aligner = 0 if work.freeze_aligner else shape.aligner
    return language + tower + aligner


# Activations of vLLM's profile run with the largest image, CUDA graphs, communicators: least and most.
# vLLM prints its own figure when it starts.
OVERHEAD = (1 * GIB, 3 * GIB)


def weights(shape: ModelShape, setting: Setting) -> float:
    """16-bit weights of one GPU of an engine."""
    return 2 * shape.total / setting.tensor_parallel


def cache_per_sequence(shape: ModelShape, work: Work, tensor_parallel: int) -> float:
    """Keys and values of a prompt and its longest completion on one GPU, heads no finer than one per GPU."""
    token = 2 * 2 * shape.text.attending * shape.text.kv / min(tensor_parallel, shape.kv_heads)
    return sequence_tokens(shape, work) * token


def sequences(setting: Setting, machine: Machine) -> int:
    """Completions that one engine has in hand at a time."""
    if setting.rollout == "server":
        engines = max(1, setting.server_gpus // setting.tensor_parallel)
        return math.ceil(setting.generation_batch(machine) / engines)
    return setting.micro_batch * setting.tensor_parallel * setting.accumulation


def cache_space(shape: ModelShape, setting: Setting, machine: Machine) -> tuple[float, float]:
    """Bytes that are left for keys and values, most and least."""
    space = setting.utilization * machine.gpu_memory * GIB - weights(shape, setting)
    return space - OVERHEAD[0], space - OVERHEAD[1]


def least_utilization(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    """Smallest utilization, in steps of 0.05, with which every completion in hand, at least four, fits."""
    needed = max(4, sequences(setting, machine)) * cache_per_sequence(shape, work, setting.tensor_parallel)
    share = (weights(shape, setting) + OVERHEAD[1] + needed) / (machine.gpu_memory * GIB)
    return math.ceil(share * 20) / 20
