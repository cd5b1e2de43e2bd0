"""``swift-grpo-ext plan``: the table and the launch script."""

import math
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from swift_grpo_ext.doctor.plan import script
from swift_grpo_ext.doctor.plan.catalogue import loadable, require_config, shape_by_config
from swift_grpo_ext.doctor.plan.search import Plan, plans
from swift_grpo_ext.doctor.plan.setting import Machine, ModelShape, Work
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.folders import made_folder
from swift_grpo_ext.group.gpu_memory import GIB
from swift_grpo_ext.models.families import family_of

SHOWN = 8
NOT_MEASURED = (
    "Sorted by what is copied between GPU and CPU, then by tokens forwarded per completion (scaled to all "
    "GPUs), then by head-room at the high end. Speed was not measured: try neighbours of this table."
)

MEGATRON = (
    "A mixture of experts: ms-swift's own way is megatron rlhf, where each GPU holds a part of the experts; "
    "train_megatron.sh is written beside train.sh (its memory is not planned)."
)


def run(
    model: str,
    work: Work,
    machine: Machine,
    *,
    output: Path | None = None,
    console: Console | None = None,
) -> bool:
    """Print the ranked settings and write script and JSON to a folder; whether some setting fits.

    The command ends with exit code 0 if one fits, else 2.

    Raises:
        SwiftGrpoExtError: The model has no configuration here, or the folder cannot be written.
    """
    console = console or Console()
    config = require_config(model)
    if output is not None:
        made_folder(output, "--output")
    shape = shape_by_config(config)
    if shape.vision is None:
        work = replace(work, images=0)
    console.print(
        f"{model}: {shape.total / 1e9:.2f} B parameters, {shape.tower / 1e9:.2f} B of them in the vision "
        f"tower; on {machine.nodes} x {machine.gpus_per_node} GPUs of {machine.gpu_memory:g} GiB",
        highlight=False,
    )
    candidates = _plans(str(config.get("model_type")), shape, work, machine, console)
    console.print(_table(candidates[:SHOWN]))
    console.print(NOT_MEASURED, highlight=False)
    if not candidates[0].fits:
        console.print("[red]No setting is certain to fit.[/red] Closest candidates, and why they may fail:")
        for objection in candidates[0].objections:
            console.print(f"  {objection.what} -> {objection.fix}", highlight=False, soft_wrap=True)
        smaller = _with_4_bits(shape, work, machine)
        if smaller is not None:
            console.print(
                f"[green]With --quant-bits 4 it fits[/green]: {label(smaller)}, GPU "
                f"{_span(smaller.memory.peak)} GiB, {100 * smaller.headroom:.0f} % head-room",
                highlight=False,
                soft_wrap=True,
            )
        return False
    if shape.has_experts and machine.gpus > 1:
        console.print(MEGATRON, highlight=False, soft_wrap=True)
    if output is not None:
        written = script.write(output, loadable(model), shape, work, candidates[0], machine)
        console.print(f"written: {', '.join(map(str, written))}", soft_wrap=True, highlight=False)
    return True


def _with_4_bits(shape: ModelShape, work: Work, machine: Machine) -> Plan | None:
    """The plan with weights of 4 bits, which LoRA can train on; None if it does not fit either."""
    if work.full or work.bits <= 4:
        return None
    candidates = plans(shape, replace(work, bits=4, rollouts=("transformers",)), machine)
    return candidates[0] if candidates and candidates[0].fits else None


def _plans(family: str, shape: ModelShape, work: Work, machine: Machine, console: Console) -> list[Plan]:
    """All plans; says on the console why some rollouts are not among them.

    Raises:
        SwiftGrpoExtError: A rollout server has no GPU left, or the batch cannot be cut into whole groups.
    """
    facts = family_of(family)
    reason = facts.lacks.get("vllm", "") if facts else ""
    if work.bits < 16:
        reason = "weights of 4 or 8 bits cannot be sent to vLLM, which holds them in 16"
    if reason:
        console.print(f"rollouts by transformers: {reason}", highlight=False, soft_wrap=True)
        work = replace(work, rollouts=("transformers",))
    if machine.gpus < 2 and work.rollouts == ("server",):
        what = "a rollout server needs GPUs of its own"
        fix = "--gpus 2 or more, or colocate"
        raise SwiftGrpoExtError(what, where="--rollout server", fix=fix)
    candidates = plans(shape, work, machine)
    if not candidates:
        raise SwiftGrpoExtError(
            f"{work.per_step or 'so many'} completions per step in micro-batches of {work.batch or 'any'} "
            f"cannot be shared out over {machine.gpus} GPUs in whole groups of {work.generations}",
            where="--completions-per-step",
            fix=f"a multiple of {math.lcm(machine.gpus * max(1, work.batch), work.generations)}",
        )
    return candidates


def _table(candidates: list[Plan]) -> Table:
    headings = ["setting", "batch", "GPU GiB", "fullest", "head-room", "CPU GiB", "tokens"]
    if not all(plan.fits for plan in candidates):
        headings.append("fails because")
    columns = (Column(heading, overflow="fold") for heading in headings)
    table = Table(*columns, title="memory and tokens by arithmetic")
    for plan in candidates:
        typed, cut = (f"{one.micro_batch} x {one.accumulation}" for one in (plan.setting, plan.cut))
        cells = [
            label(plan),
            typed if typed == cut else f"{typed}, run as {cut}",  # as written, and as the trainer cuts them
            _span(plan.memory.peak),
            plan.memory.peak_phase,
            f"{100 * plan.headroom:.0f} %",
            _span(plan.memory.cpu_total, 0),
            f"{plan.tokens:.0f}",
            *(("" if one.certain else "may: ") + one.what for one in plan.objections[:1]),
        ]
        table.add_row(*cells[: len(headings)], style="" if plan.fits else "red")
    return table


def _span(least_and_most: tuple[float, float], digits: int = 1) -> str:
    return "-".join(f"{size / GIB:.{digits}f}" for size in least_and_most)


def label(plan: Plan) -> str:
    """A setting in a few words."""
    setting = plan.setting
    words = [setting.preset or "one GPU", setting.rollout]
    if setting.rollout != "transformers":
        words.append(f"TP {setting.tensor_parallel}")
    if plan.cut.shared > 1:
        words.append(f"{plan.cut.shared} share a prompt")
    return ", ".join([*words, *(["offload"] if setting.offload_model else [])])
