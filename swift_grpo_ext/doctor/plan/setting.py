"""A model's sizes, the machine, the work of a step, and the setting that distributes it over the GPUs."""

import math
from dataclasses import dataclass
from typing import Literal

from swift_grpo_ext.group.gpu_memory import GIB
from swift_grpo_ext.group.pack_memory import TextSizes, Trained

# Pixels of a small and of a usual image: 256 and 1280 tokens of 28 x 28 pixels, the range that Qwen2.5-VL's
# card advises (https://huggingface.co/Qwen/Qwen2.5-VL-7B-Instruct). Without MAX_PIXELS the limit is 16384.
SMALL_PIXELS = 256 * 28 * 28
USUAL_PIXELS = 1280 * 28 * 28
MOST_PIXELS = 16384 * 28 * 28


@dataclass(frozen=True)
class VisionShape:
    """Sizes of a vision tower."""

    depth: int  # layers
    hidden: int  # width
    intermediate: int  # width of the MLP
    patch: int  # side of a patch in pixels
    merge: int  # patches per side that become one token of the language model
    channels: int  # values of one patch in `pixel_values`
    tile: int = 0  # side of a tile in pixels where images are cut into tiles; 0 where they are resized
    most_tiles: int = 9  # most tiles of an image, without the overview
    fixed: int = 0  # tokens of every image, whatever its size (Gemma); 0 if they depend on it

    def tokens(self, pixels: int) -> int:
        """Language model tokens of an image with that many pixels, including the overview image of tiles."""
        if self.fixed:
            return self.fixed
        if not self.tile:
            return max(1, pixels // (self.patch * self.merge) ** 2)
        per_tile = (self.tile // (self.patch * self.merge)) ** 2
        tiles = min(self.most_tiles, max(1, -(-pixels // self.tile**2)))
        return per_tile * (tiles + (tiles > 1))


@dataclass(frozen=True)
class ModelShape:
    """Parameter counts and widths of a model."""

    language: int  # parameters of the language model's layers and final norm
    embedding: int  # parameters of the token embedding
    head: int  # parameters of the output layer; 0 if it shares the embedding's
    tower: int  # parameters of the towers (vision, audio) without the aligner
    aligner: int  # parameters between tower and language model
    largest: int  # parameters of the largest single module
    text: TextSizes  # widths of the language model
    kv_heads: int  # key and value heads
    heads: int  # query heads
    lora_sizes: int  # inputs and outputs of all linear layers inside the language model's layers
    vision: VisionShape | None  # the vision tower, or None

    @property
    def total(self) -> int:
        """All parameters, shared ones once."""
        return self.language + self.embedding + self.head + self.tower + self.aligner

    def lora(self, rank: int) -> int:
        """Parameters of LoRA on every linear layer of the language model."""
        return rank * self.lora_sizes


Rollout = Literal["colocate", "server", "transformers"]
Scoring = Literal["chunks", "logits"]


@dataclass(frozen=True)
class Machine:
    """The GPUs."""

    nodes: int = 1  # machines
    gpus_per_node: int = 8  # GPUs of one machine
    gpu_memory: float = 80  # memory of one GPU, GiB, as it is sold (80, 24)

    @property
    def gpus(self) -> int:
        """GPUs of all machines."""
        return self.nodes * self.gpus_per_node

    @property
    def usable(self) -> float:
        """Bytes that a process can allocate: drivers show 79.1 GiB of 80, 23.6 of 24, 47.5 of 48."""
        return 0.985 * self.gpu_memory * GIB


@dataclass(frozen=True)
class Work:
    """Sizes of one prompt and its completions, the trained parts, and the user's choices."""

    full: bool = False  # full-parameter training; else LoRA
    lora_rank: int = 8  # rank of LoRA
    generations: int = 8  # completions per prompt (`--num_generations`)
    text_tokens: int = 256  # tokens of a prompt without its images
    images: int = 1  # images per prompt
    max_pixels: int = USUAL_PIXELS  # pixels of one image after resizing
    completion_tokens: int = 1024  # `--max_completion_length`
    kl: bool = True  # log-probs of a reference are needed (`--beta` above 0)
    freeze_vit: bool = True  # the vision tower is not trained
    freeze_aligner: bool = True  # the aligner is not trained
    freeze_llm: bool = False  # the language model is not trained

    @property
    def trained(self) -> Trained:
        """The kind of training, on which the activations depend."""
        return "full" if self.full else "lora"


@dataclass(frozen=True)
class Setting:
    """One way to run the work on the machine."""

    stage: int = 3  # ZeRO stage; 0 is plain data parallelism
    offload_optimizer_states: bool = False  # DeepSpeed keeps optimizer states in CPU memory
    offload_params: bool = False  # DeepSpeed keeps weights in CPU memory
    rollout: Rollout = "colocate"  # where completions are generated
    tensor_parallel: int = 1  # `--vllm_tensor_parallel_size`
    utilization: float = 0.5  # `--vllm_gpu_memory_utilization`
    sleep_level: int = 1  # `--sleep_level`
    offload_model: bool = False  # `--offload_model`
    offload_optimizer: bool = False  # `--offload_optimizer`
    move_model_batches: int = 0  # `--move_model_batches`; 0 for all weights at once
    micro_batch: int = 1  # `--per_device_train_batch_size`
    accumulation: int = 1  # `--gradient_accumulation_steps`, and the micro-batches of one generation batch
    checkpointing: bool = True  # `--gradient_checkpointing`
    bucket: float = 5e7  # DeepSpeed's `reduce_bucket_size`, elements
    scoring: Scoring = "logits"  # how log-probs are computed; our trainer does it in chunks
    shared: int = 1  # completions that share one forward pass of their prompt; divides the micro-batch

    @property
    def packs(self) -> int:
        """Packs per micro-batch; its rows if none share a prompt."""
        return self.micro_batch // self.shared

    def of_one_prompt(self, generations: int) -> int:
        """Completions of one prompt in every micro-batch of a rank."""
        return math.gcd(self.micro_batch, math.gcd(self.micro_batch * self.accumulation, generations))
