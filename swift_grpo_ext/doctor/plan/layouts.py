"""Four layouts of a run over GPUs that train and sample in turn: which of them fit, and what would help."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from swift_grpo_ext.doctor.plan import arithmetic
from swift_grpo_ext.doctor.plan.memory import MemoryRange, memory_range
from swift_grpo_ext.doctor.plan.setting import Machine, ModelShape, Setting, Work
from swift_grpo_ext.group.gpu_memory import GIB

# By the name of our DeepSpeed preset; ddp has none.
LAYOUTS = {
    "ddp": Setting(stage=0),
    "ext_zero2": Setting(stage=2),
    "ext_zero3": Setting(stage=3),
    "ext_zero3_offload": Setting(stage=3, offload_optimizer_states=True, offload_params=True),
}
VERDICTS = ("fits", "tight", "unsure", "no")
UNSURE = 2  # from this verdict on a layout is not recommended
COMPLETIONS = 64  # least number of an optimizer step: with fewer, advantages are noise
SPARE = 0.1  # share of a GPU that must stay free for "fits"; with less it is "tight"
OLD_CARD = 16  # GiB: most cards of this size (V100, T4) have no bf16
NO_BF16 = "vLLM refuses bf16 below compute capability 8.0 (V100, T4)"
NO_MASTERS = "without DeepSpeed there are no fp32 weights: bf16 rounds small updates away"
SYNCED = 4e9  # bytes of weights that are sent to vLLM at a time


@dataclass(frozen=True)
class Question:
    """A model, the work of a step, and the machine."""

    shape: ModelShape
    work: Work
    machine: Machine
    batch: int = 1  # completions per micro-batch, as in the command
    shares: bool = True  # this package's trainer forwards a prompt once for its completions
    vllm: bool = True  # vLLM can generate; else transformers does
    bf16: bool | None = None  # the GPUs support bf16; None if unknown

    @property
    def accumulation(self) -> int:
        """Micro-batches per step, so that it has whole groups and at least 64 completions over all GPUs."""
        together = self.batch * self.machine.gpus
        whole = self.work.generations // math.gcd(together, self.work.generations)
        return whole * math.ceil(COMPLETIONS / (together * whole))


@dataclass(frozen=True)
class LayoutNeed:
    """A layout in its best setting, with the memory it needs."""

    name: str
    setting: Setting
    memory: MemoryRange
    margin: float  # bytes of a GPU left in the worst case; negative if that does not fit
    verdict: int  # index into `VERDICTS`
    reason: str = ""  # why it cannot run, regardless of memory


def answers(question: Question) -> list[LayoutNeed]:
    """The four layouts; the first that fits is the best, as each later one copies or communicates more."""
    return [answer(question, name) for name in LAYOUTS]


def answer(question: Question, name: str) -> LayoutNeed:
    """A layout in the setting that fits best, moves least to the CPU, and has the fewest GPUs per engine."""

    def order(tried: LayoutNeed) -> tuple[float, ...]:
        peak = tried.memory.peak[1] if tried.verdict >= UNSURE else 0
        return tried.verdict, peak, tried.setting.offload_model, tried.setting.tensor_parallel

    return min((_judged(question, name, each) for each in _settings(question, LAYOUTS[name])), key=order)


def best_lever(question: Question, now: LayoutNeed) -> tuple[str, float]:
    """The change of the command that lowers the peak of a GPU most, and by how many bytes."""
    peaks = {words: answer(changed, now.name).memory.peak[1] for words, changed in _levers(question, now)}
    words = min(peaks, key=lambda words: peaks[words])
    return words, now.memory.peak[1] - peaks[words]


def _levers(question: Question, now: LayoutNeed) -> Iterator[tuple[str, Question]]:
    """Changes of the command; one that does not apply to the run lowers nothing."""
    work, machine = question.work, question.machine
    half, pixels = work.completion_tokens // 2, work.max_pixels // 2
    changes = {
        f"--max_completion_length {half}": replace(work, completion_tokens=half),
        f"MAX_PIXELS={pixels}": replace(work, max_pixels=pixels),
        "--tuner_type lora": replace(work, full=False),
        "--beta 0": replace(work, kl=False),
    }
    for words, changed in changes.items():
        yield words, replace(question, work=changed)
    yield "--per_device_train_batch_size 1", replace(question, batch=1)
    if now.verdict:
        yield "twice as many GPUs", replace(question, machine=replace(machine, nodes=2 * machine.nodes))


def _settings(question: Question, layout: Setting) -> Iterator[Setting]:
    """The layout with every possible engine size, each with the trainer on the GPU or offloaded."""
    shape, work, machine = question.shape, question.work, question.machine
    layout = replace(layout, micro_batch=question.batch, accumulation=question.accumulation)
    if question.shares:
        layout = replace(layout, scoring="chunks", shared=layout.of_one_prompt(work.generations))
    if not question.vllm:
        yield replace(layout, rollout="transformers")
        return
    if layout.stage == 3:
        groups = math.ceil(2 * shape.language / SYNCED)
        layout = replace(layout, move_model_batches=min(shape.text.layers, groups))
    for size in (1, 2, 4, 8):
        if machine.gpus_per_node % size or shape.heads % size:
            continue
        engine = replace(layout, tensor_parallel=size)
        needed, least = (
            arithmetic.engine_bytes(shape, work, engine, completions) / (machine.gpu_memory * GIB)
            for completions in (max(4, question.batch * question.accumulation * size), 1)
        )
        # Of a whole GPU a twentieth at a time; above 0.9 only where even one completion takes more.
        share = min(0.9, max(0.3, math.ceil(needed * 20) / 20))
        engine = replace(engine, utilization=max(share, least))
        yield engine
        if not layout.offload_params:
            yield replace(engine, offload_model=True, offload_optimizer=work.full)


def _judged(question: Question, name: str, setting: Setting) -> LayoutNeed:
    usable = question.machine.usable
    memory = memory_range(question.shape, question.work, setting, question.machine)
    low, high = memory.peak
    without_masters = question.work.full and not setting.stage
    reason = NO_BF16 if question.bf16 is False else NO_MASTERS if without_masters else ""
    is_certain = (
        question.bf16 is True or question.machine.gpu_memory > OLD_CARD
    )  # that the card computes in bf16
    verdict = 0 if is_certain and high <= (1 - SPARE) * usable else 1 if high <= usable else 2
    return LayoutNeed(name, setting, memory, usable - high, 3 if reason or low > usable else verdict, reason)
