"""Bytes on one GPU in each phase of a GRPO step, term by term.

Model states follow the ZeRO paper (arXiv 1910.02054) as DeepSpeed's own estimators count them: 2 bytes for a
16-bit weight, 2 for its gradient, 12 for the fp32 weight and Adam's two moments, 4 for the fp32 gradient that
the step makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from swift_grpo_ext.doctor.plan import activations, engine
from swift_grpo_ext.doctor.plan.setting import GIB, Machine, Setting, Work
from swift_grpo_ext.doctor.plan.shape import ModelShape

BUCKET = 50_000_000  # reduce_bucket_size of our presets, elements
SUB_GROUP = 200_000_000  # sub_group_size of our presets, elements
LIVE = 1_000_000_000  # stage3_max_live_parameters of our presets, elements
ASLEEP = 1.5 * GIB  # what vLLM keeps while it sleeps: graphs, workspaces, communicators

PHASES = ("start", "sync", "rollout", "update", "step")


@dataclass(frozen=True)
class Term:
    """One thing that takes memory."""

    name: str
    bytes: float


@dataclass(frozen=True)
class Budget:
    """Memory of one training GPU by phase, and of one machine's CPU.

    Attributes:
        phases: Terms of each phase of `PHASES`: the start of the rollout engine, the weight sync to it, the
            rollout, forward and backward, the optimizer step.
        cpu: Terms of one machine's memory.
    """

    phases: dict[str, tuple[Term, ...]]
    cpu: tuple[Term, ...]

    def total(self, phase: str) -> float:
        """Bytes of a phase."""
        return sum(term.bytes for term in self.phases[phase])

    @property
    def peak_phase(self) -> str:
        """The phase that needs most."""
        return max(self.phases, key=self.total)

    @property
    def peak(self) -> float:
        """Most bytes on a GPU."""
        return self.total(self.peak_phase)

    @property
    def cpu_total(self) -> float:
        """Bytes in one machine's memory."""
        return sum(term.bytes for term in self.cpu)


def budget(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Budget:
    """Memory that a setting needs."""
    weights = list(_weights(shape, work, setting, machine))
    optimizer = [Term("optimizer states", optimizer_states(shape, work, setting, machine))]
    states = weights + optimizer
    while_rolling = [] if setting.offload_model else weights
    while_rolling = while_rolling + ([] if setting.offload_optimizer else optimizer)
    awake, asleep, loaded = _engine_terms(shape, setting, machine)
    gradients = [Term("gradients", gradient_bytes(shape, work, setting, machine))]
    update = [
        *states,
        *asleep,
        *gradients,
        Term("gathered weights", gathered(shape, setting)),
        Term("images of the generation batch", activations.pixel_values(shape, work, setting)),
        Term("activations", activations.update_peak(shape, work, setting)),
    ]
    step = [*states, *asleep, *gradients, Term("fp32 gradients", step_bytes(shape, work, setting, machine))]
    phases = {
        "start": (*([] if setting.offload_model else weights), *awake),
        "sync": (*states, *loaded, Term("gathered for the sync", sync_bytes(shape, setting))),
        "rollout": (*while_rolling, *awake, *_generate_terms(shape, work, setting)),
        "update": tuple(update),
        "step": tuple(step),
    }
    return Budget(phases, tuple(_cpu(shape, work, setting, machine)))


def weight_bytes(shape: ModelShape, setting: Setting, machine: Machine) -> float:
    """16-bit weights of the policy on one GPU, the second copy of hpZ included."""
    if setting.stage < 3:
        return 2 * shape.total
    sharded = 0 if setting.offload_params else 2 * shape.total / setting.train_gpus(machine)
    second = 2 * shape.total / setting.ranks_per_node(machine) if setting.hpz else 0
    return sharded + second + 2 * shape.small


def gradient_bytes(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    """16-bit gradients on one GPU, the bucket that they are reduced in included."""
    trained = _trained(shape, work)
    if setting.stage == 0:
        copies = 1 + (setting.train_gpus(machine) > 1)  # DDP's buckets are a second copy
        return 2 * copies * trained
    if setting.stage == 1:
        return 2 * trained + 2 * BUCKET
    kept = 0 if setting.offload_optimizer_states else 2 * trained / setting.train_gpus(machine)
    return kept + 2 * BUCKET


def optimizer_states(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    """fp32 weights and Adam's moments on one GPU; without DeepSpeed the moments alone, in 16 bits."""
    trained = _trained(shape, work)
    if setting.stage == 0:
        return 4 * trained
    return 0 if setting.offload_optimizer_states else 12 * trained / setting.train_gpus(machine)


def step_bytes(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    """fp32 gradients that the optimizer step makes: all of a rank's, or in ZeRO-3 one sub-group's."""
    if setting.stage == 0 or setting.offload_optimizer_states:
        return 0
    own = _trained(shape, work) / setting.train_gpus(machine)
    return 4 * (min(own, SUB_GROUP) if setting.stage == 3 else own)


def gathered(shape: ModelShape, setting: Setting) -> float:
    """Weights that ZeRO-3 has gathered at one time while the model runs."""
    if setting.stage < 3:
        return 0
    return 2 * min(shape.total, LIVE + shape.largest)


def sync_bytes(shape: ModelShape, setting: Setting) -> float:
    """Weights that are whole on one GPU at one time while they are sent to the rollout engine.

    ``move_model_batches`` cuts the language model's layers only: embedding and output layer stay one group,
    the vision tower another. The server mode adds a flat bucket of 512 MB and its source.
    """
    flat = 2 * 512e6 if setting.rollout == "server" else 0
    if setting.rollout == "transformers" or setting.stage < 3:
        return flat
    if not setting.move_model_batches:
        return 2 * shape.total + flat
    layers = -(-shape.layers // setting.move_model_batches)
    group = max(
        layers * shape.language / shape.layers, shape.embedding + shape.head, shape.tower + shape.aligner
    )
    return 2 * group + flat


def _weights(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Iterator[Term]:
    yield Term("weights", weight_bytes(shape, setting, machine))
    if not work.full:
        yield Term("LoRA", 2 * shape.lora(work.lora_rank))
    if work.full and work.kl:
        yield Term("reference model", weight_bytes(shape, setting, machine))


def _engine_terms(
    shape: ModelShape, setting: Setting, machine: Machine
) -> tuple[list[Term], list[Term], list[Term]]:
    """What vLLM takes on a training GPU: awake, asleep, and with only its weights loaded."""
    if setting.rollout != "colocate":
        return [], [], []
    awake = [Term("vLLM", setting.utilization * machine.gpu_memory * GIB)]
    if setting.sleep_level == 0:
        return awake, awake, awake
    loaded = [Term("vLLM weights", engine.weights(shape, setting)), Term("vLLM asleep", ASLEEP)]
    return awake, [Term("vLLM asleep", ASLEEP)], loaded


def _generate_terms(shape: ModelShape, work: Work, setting: Setting) -> list[Term]:
    """Rollout by transformers' own generate: the whole model under ZeRO-3, and the key-value cache."""
    if setting.rollout != "transformers":
        return []
    cache = setting.micro_batch * setting.accumulation * engine.cache_per_sequence(shape, work, 1)
    whole = 2 * shape.total if setting.stage == 3 else 0
    return [Term("gathered for generation", whole), Term("key-value cache", cache)]


def _cpu(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Iterator[Term]:
    """Pinned copies cost half as much again, as in DeepSpeed's estimators."""
    trained, nodes = _trained(shape, work), setting.train_nodes(machine)
    if setting.offload_optimizer_states:
        yield Term("optimizer states and gradients", 1.5 * 16 * trained / nodes)
    if setting.offload_params:
        yield Term("weights", 1.5 * 2 * shape.total / nodes)
    share = setting.ranks_per_node(machine)
    if setting.offload_model:
        yield Term("--offload_model", share * weight_bytes(shape, setting, machine))
    if setting.offload_optimizer:
        yield Term("--offload_optimizer", share * optimizer_states(shape, work, setting, machine))
    if setting.rollout == "colocate" and setting.sleep_level == 1:
        yield Term("vLLM's sleeping weights", share * engine.weights(shape, setting))
    if setting.stage < 3:
        yield Term("weights while loading", 2 * shape.total * share)


def _trained(shape: ModelShape, work: Work) -> int:
    return shape.trainable(
        full=work.full,
        rank=work.lora_rank,
        freeze_vit=work.freeze_vit,
        freeze_aligner=work.freeze_aligner,
    )
