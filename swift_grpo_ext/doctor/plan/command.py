"""``swift-grpo-ext plan``: the table, the bar plot and the launch script."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from swift_grpo_ext.doctor.plan import script
from swift_grpo_ext.doctor.plan.catalogue import loadable, require_config, shape_by_config
from swift_grpo_ext.doctor.plan.search import Plan, plans
from swift_grpo_ext.doctor.plan.setting import GIB, Machine, ModelShape, Work
from swift_grpo_ext.errors import MissingExtraError, SwiftGrpoExtError
from swift_grpo_ext.folders import made_folder
from swift_grpo_ext.models.families import family_of

SHOWN = 8
NOT_MEASURED = (
    "Sorted by what is copied between GPU and CPU, then by tokens forwarded per completion (scaled to all "
    "GPUs), then by head-room at the high end. Speed was not measured: try neighbours of this table."
)


def run(
    model: str,
    work: Work,
    machine: Machine,
    *,
    output: Path | None = None,
    console: Console | None = None,
) -> bool:
    """Print the ranked settings and write script, JSON and plot to a folder; whether some setting fits."""
    console, config = console or Console(), require_config(model)
    if output is not None:
        made_folder(output, "--output")
    shape = shape_by_config(config)
    console.print(
        f"{model}: {shape.total / 1e9:.2f} B parameters, {shape.tower / 1e9:.2f} B of them in the vision "
        f"tower; on {machine.nodes} x {machine.gpus_per_node} GPUs of {machine.gpu_memory:g} GiB",
        highlight=False,
    )
    found = _plans(str(config.get("model_type")), shape, work, machine, console)
    console.print(_table(found[:SHOWN]))
    console.print(NOT_MEASURED, highlight=False)
    if not found[0].fits:
        console.print("[red]No setting surely fits.[/red] The nearest, because of:")
        for one in found[0].objections:
            console.print(f"  {one.what} -> {one.fix}", highlight=False, soft_wrap=True)
        return False
    if output is not None:
        written = script.write(output, loadable(model), shape, work, found[0], machine)
        files = ", ".join(map(str, [*written, plot(found[:SHOWN], machine, output / "plan.png")]))
        console.print(f"written: {files}", soft_wrap=True, highlight=False)
    return True


def _plans(family: str, shape: ModelShape, work: Work, machine: Machine, console: Console) -> list[Plan]:
    """All plans; says on the console why some rollouts are not among them."""
    facts = family_of(family)
    reason = facts.lacks.get("vllm", "") if facts else ""
    if work.bits < 16:
        reason = "weights of 4 or 8 bits cannot be sent to vLLM, which holds them in 16"
    if reason:
        console.print(f"rollouts by transformers: {reason}", highlight=False, soft_wrap=True)
        work = replace(work, rollouts=("transformers",))
    if machine.gpus < 2 and work.rollouts == ("server",):
        what, fix = "a rollout server needs GPUs of its own", "--gpus 2 or more, or colocate"
        raise SwiftGrpoExtError(what, where="--rollout server", fix=fix)
    found = plans(shape, work, machine)
    if not found:
        raise SwiftGrpoExtError(
            f"{work.per_step or 'so many'} completions per step in micro-batches of {work.batch or 'any'} "
            f"cannot be shared out over {machine.gpus} GPUs in whole groups of {work.generations}",
            where="--completions-per-step",
            fix=f"a multiple of {math.lcm(machine.gpus * max(1, work.batch), work.generations)}",
        )
    return found


def _table(found: list[Plan]) -> Table:
    headings = ["setting", "batch", "GPU GiB", "fullest", "head-room", "CPU GiB", "tokens"]
    if not all(plan.fits for plan in found):
        headings.append("fails because")
    columns = (Column(heading, overflow="fold") for heading in headings)
    table = Table(*columns, title="memory and tokens by arithmetic")
    for plan in found:
        asked, cut = (f"{one.micro_batch} x {one.accumulation}" for one in (plan.setting, plan.cut))
        cells = [
            label(plan),
            asked if asked == cut else f"{asked}, run as {cut}",  # as written, and as the trainer cuts them
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
    words = {
        setting.preset or "one GPU": True,
        setting.rollout: True,
        f"TP {setting.tensor_parallel}": setting.rollout != "transformers",
        f"util {setting.utilization:.2f}": setting.rollout == "colocate",
        f"sync in {setting.move_model_batches} parts": setting.move_model_batches,
        f"{plan.cut.shared} share a prompt": plan.cut.shared > 1,
        "offload": setting.offload_model,
    }
    return ", ".join(text for text, holds in words.items() if holds)


def plot(found: list[Plan], machine: Machine, path: Path) -> Path:
    """Stacked bars of each setting's fullest phase, with the GPU's limit as a line."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib is missing", fix='pip install "swift-grpo-ext[report]"') from None
    figure = Figure(figsize=(11, 1.6 + 0.5 * len(found)), layout="constrained")
    axes = figure.subplots()
    phases = [plan.memory.phases[plan.memory.peak_phase] for plan in found]
    peaks = [Counter({term.name: int(term.high) for term in terms}) for terms in phases]
    left = [0.0] * len(found)
    rows = [label(plan) for plan in found]
    for name, _ in sum(peaks, Counter()).most_common():
        widths = [peak[name] / GIB for peak in peaks]
        axes.barh(rows, widths, left=left, label=name)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.axvline(machine.usable / GIB, color="black", linestyle="--", label="usable")
    axes.invert_yaxis()
    axes.set_xlabel("GiB on one GPU in the fullest phase, at most")
    figure.legend(loc="outside upper center", ncols=4, fontsize="small")
    figure.savefig(path, dpi=120)
    return path
