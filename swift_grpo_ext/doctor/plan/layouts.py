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
    peaks = ((answer(changed, now.name).memory.peak[1], words) for words, changed in _levers(question, now))
    peak, words = min(peaks)
    return words, now.memory.peak[1] - peak


def _levers(question: Question, now: LayoutNeed) -> Iterator[tuple[str, Question]]:
    work, machine = question.work, question.machine
    half, pixels = work.completion_tokens // 2, work.max_pixels // 2
    changes = [(f"--max_completion_length {half}", replace(work, completion_tokens=half))]
    if work.full:
        changes.append(("--tuner_type lora", replace(work, full=False)))
        changes.append(("--beta 0", replace(work, kl=False)))
    elif not now.setting.stage:
        changes.append(("--quant_method bnb --quant_bits 4 --use_vllm false", replace(work, bits=4)))
    if work.images:
        changes.append((f"MAX_PIXELS={pixels}", replace(work, max_pixels=pixels)))
    for words, changed in changes:
        yield words, replace(question, work=changed)
    if now.verdict and now.setting.stage > 1:
        yield "twice as many GPUs", replace(question, machine=replace(machine, nodes=2 * machine.nodes))
    if question.batch > 1:
        yield "--per_device_train_batch_size 1", replace(question, batch=1)


def _settings(question: Question, layout: Setting) -> Iterator[Setting]:
    """The layout with every possible engine size, each with the trainer on the GPU or offloaded."""
    shape, work, machine = question.shape, question.work, question.machine
    layout = replace(layout, micro_batch=question.batch, accumulation=question.accumulation)
    if question.shares:
        layout = replace(layout, scoring="chunks", shared=layout.of_one_prompt(work.generations))
    if not question.vllm or work.bits < 16:  # vLLM cannot take 4-bit weights from a trainer
        yield replace(layout, rollout="transformers")
        return
    if layout.stage == 3:
        groups = math.ceil(2 * shape.language / SYNCED)
        layout = replace(layout, move_model_batches=min(shape.text.layers, groups))
    for size in (1, 2, 4, 8):
        if machine.gpus_per_node % size or shape.heads % size:
            continue
        engine = replace(layout, tensor_parallel=size)
        held = max(4, question.batch * question.accumulation * size)
        share = arithmetic.engine_bytes(shape, work, engine, held) / (machine.gpu_memory * GIB)
        engine = replace(engine, utilization=min(0.9, max(0.3, math.ceil(share * 20) / 20)))
        yield engine
        if not layout.offload_params:
            yield replace(engine, offload_model=True, offload_optimizer=work.full)


def _judged(question: Question, name: str, setting: Setting) -> LayoutNeed:
    shape, work, machine = question.shape, question.work, question.machine
    reason = ""
    if question.bf16 is False:
        reason = "vLLM refuses bf16 below compute capability 8.0 (V100, T4)"
    elif work.full and not setting.stage:
        reason = "without DeepSpeed there are no fp32 weights: bf16 rounds small updates away"
    elif setting.rollout == "colocate":
        least = arithmetic.engine_bytes(shape, work, setting, 1)
        room = setting.utilization * machine.gpu_memory * GIB
        if least > room:
            reason = f"vLLM has {room / GIB:.0f} GiB, needs {least / GIB:.0f} for weights and one completion"
    memory = memory_range(shape, work, setting, machine)
    low, high = memory.peak
    is_certain = question.bf16 is True or machine.gpu_memory > OLD_CARD  # that the card computes in bf16
    verdict = 0 if is_certain and high <= (1 - SPARE) * machine.usable else 1
    verdict = 3 if reason or low > machine.usable else 2 if high > machine.usable else verdict
    return LayoutNeed(name, setting, memory, machine.usable - high, verdict, reason)
