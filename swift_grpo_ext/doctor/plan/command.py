"""``swift-grpo-ext plan``: the table of layouts, its assumptions, and the command of the best layout."""

import shlex
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from swift_grpo_ext.doctor.plan import arithmetic
from swift_grpo_ext.doctor.plan.layouts import (
    UNSURE,
    VERDICTS,
    LayoutNeed,
    Question,
    answers,
    best_lever,
)
from swift_grpo_ext.doctor.plan.models import loadable, require_config, shape_by_config
from swift_grpo_ext.doctor.plan.setting import Machine, Work
from swift_grpo_ext.group.gpu_memory import GIB
from swift_grpo_ext.models.families import family_of


def run(
    model: str,
    work: Work,
    machine: Machine,
    *,
    batch: int = 1,
    shares: bool = True,
    bf16: bool | None = None,
    console: Console | None = None,
) -> bool:
    """Print the table and the command of the first layout that fits; False if none does.

    Raises:
        SwiftGrpoExtError: The model is unknown.
    """
    console = console or Console()
    config = require_config(model)
    shape = shape_by_config(config)
    work = work if shape.vision else replace(work, images=0)
    family = family_of(str(config.get("model_type")))
    no_engine = family.lacks.get("vllm", "") if family else ""
    question = Question(shape, work, machine, batch, shares, not no_engine, bf16)
    rows = answers(question)
    best = min(rows, key=lambda row: row.verdict)
    gpus = f"{machine.gpus} GPUs of {machine.gpu_memory:g} GiB"
    console.print(_table(f"{model}, {shape.total / 1e9:.2f} B parameters, {gpus}", question, rows))
    lines = [_assumptions(question)]
    if no_engine:
        lines.append(f"Rollouts by transformers: {no_engine}.")
    fits = best.verdict < UNSURE
    if fits:
        lines.append(f"The best, {best.name}; data, rewards and output are yours to fill in:")
    lines.append(command_line(model, question, best) if fits else "No layout is certain to fit.")
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    return fits


def _table(title: str, question: Question, rows: list[LayoutNeed]) -> Table:
    headings = ("GiB", "at rest", "at the peak", "fits", "margin")
    columns = (*(Column(name, no_wrap=True) for name in headings), Column("what helps most", overflow="fold"))
    table = Table(*columns, title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for row in rows:
        words, freed = best_lever(question, row)
        low, high = row.memory.peak
        peak = f"{high / GIB:.1f}"
        table.add_row(
            row.name.removeprefix("ext_"),
            f"{row.memory.of_phase('rest')[1] / GIB:.1f}",
            f"{low / GIB:.1f} to {peak}" if row.verdict == UNSURE else peak,
            VERDICTS[row.verdict],
            f"{row.margin / GIB:+.1f}",
            row.reason or (f"{words}: -{freed / GIB:.1f}" if freed > GIB / 2 else "-"),
            style="red" if row.verdict >= UNSURE else "",
        )
    return table


def _assumptions(question: Question) -> str:
    work, machine = question.work, question.machine
    trainer = "this package's trainer, which shares prompts (--no-sharing: ms-swift's own)"
    images = ""
    if work.images and question.shape.vision:
        tokens = question.shape.vision.tokens(work.max_pixels)
        images = f", images in each: {work.images} of {tokens} tokens (MAX_PIXELS={work.max_pixels})"
    return (
        f"Assumed: {trainer if question.shares else 'ms-swift alone'}; prompts of {work.text_tokens} tokens"
        f"{images}; completions of {work.completion_tokens} tokens, {work.generations} of a prompt; a frozen "
        f"vision tower; GPUs that compute in bf16 (V100 and T4 do not: --no-bf16), with "
        f"{machine.usable / GIB:.1f} GiB to give. Without MAX_PIXELS images may be larger."
    )


COMMAND = """\
{variables}swift rlhf \\
    --rlhf_type grpo \\
    --external_plugins "$(swift-grpo-ext path)" \\
    --model {model} \\
    --dataset rows.jsonl --reward_funcs ext_answer ext_format --output_dir output \\
    --system "You look at an image and answer a question about it. First think inside <think> and </think>, \
then give nothing but the answer inside <answer> and </answer>." \\
    --tuner_type {tuner} --warmup_ratio 0.05 --torch_dtype bfloat16 \\
    --num_generations {work.generations} --beta {beta} \\
    --per_device_train_batch_size {question.batch} --gradient_accumulation_steps {question.accumulation} \\
    --max_length {prompt} --max_completion_length {work.completion_tokens} \\
    {deepspeed}{rollout}"""
FULL = "full --learning_rate 1e-6"
LORA = "lora --lora_rank {} --lora_alpha {} --learning_rate 2e-5"
COLOCATED = """--use_vllm true --vllm_mode colocate --sleep_level 1 \\
    --vllm_tensor_parallel_size {0.tensor_parallel} --vllm_gpu_memory_utilization {0.utilization:.2f} \\
    --vllm_max_model_len {1}{2}"""
OFFLOADED = " \\\n    --offload_model true --offload_optimizer {}"


def command_line(model: str, question: Question, best: LayoutNeed) -> str:
    """The ``swift rlhf`` command with every option that the layout decides."""
    shape, work, machine, setting = question.shape, question.work, question.machine, best.setting
    nodes = f"NNODES={machine.nodes} NODE_RANK=${{NODE_RANK:?}} MASTER_ADDR=${{MASTER_ADDR:?}} "
    variables = f"NPROC_PER_NODE={machine.gpus_per_node} " + nodes * (machine.nodes > 1)
    variables += f"MAX_PIXELS={work.max_pixels} " * bool(work.images)
    rollout = "--use_vllm false"
    if setting.rollout == "colocate":
        more = f" --move_model_batches {setting.move_model_batches}" * bool(setting.move_model_batches)
        more += OFFLOADED.format(str(work.full).lower()) * setting.offload_model
        length = arithmetic.rounded_up(arithmetic.sequence_tokens(shape, work))
        rollout = COLOCATED.format(setting, length, more)
    return COMMAND.format(
        variables=variables,
        model=shlex.quote(loadable(model)),
        tuner=FULL if work.full else LORA.format(work.lora_rank, 2 * work.lora_rank),
        beta=0.04 if work.kl else 0,
        work=work,
        question=question,
        prompt=arithmetic.rounded_up(arithmetic.prompt_tokens(shape, work)),
        deepspeed=f"--deepspeed {best.name} " if setting.stage else "",
        rollout=rollout,
    )
