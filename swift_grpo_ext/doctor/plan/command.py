"""``swift-grpo-ext plan``: the table, the bar plot and the launch script."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from swift_grpo_ext.doctor.plan import reported, script
from swift_grpo_ext.doctor.plan.catalogue import loadable, require_config
from swift_grpo_ext.doctor.plan.search import Plan, plans
from swift_grpo_ext.doctor.plan.setting import GIB, Machine, Rollout, Work
from swift_grpo_ext.doctor.plan.shape import shape_of
from swift_grpo_ext.errors import MissingExtraError, SwiftGrpoExtError
from swift_grpo_ext.folders import made_folder
from swift_grpo_ext.models.families import Unsupported, family_of

SHOWN = 8


def run(
    model: str,
    work: Work,
    machine: Machine,
    *,
    rollouts: tuple[Rollout, ...] = (),
    output: Path | None = None,
    console: Console | None = None,
) -> bool:
    """Print the ranked settings; write script, JSON and plot if a folder is given.

    Args:
        model: Folder or name.
        work: What one prompt asks for.
        machine: The GPUs.
        rollouts: Who may generate; none to take what the model's family can.
        output: Folder to write to.
        console: Where to print; stdout by default.

    Returns:
        True if some setting fits.

    Raises:
        SwiftGrpoExtError: The model is unknown, or the folder cannot be written.
    """
    console = console or Console()
    config = require_config(model)
    if output is not None:
        made_folder(output, "--output")
    shape = shape_of(config)
    console.print(
        f"{model}: {shape.total / 1e9:.2f} B parameters, {shape.tower / 1e9:.2f} B of them in the vision "
        f"tower; on {machine.nodes} x {machine.gpus_per_node} GPUs of {machine.gpu_memory:g} GiB",
        highlight=False,
    )
    facts = family_of(str(config.get("model_type")))
    answer = facts.capabilities["vllm"] if facts else None
    if isinstance(answer, Unsupported):
        console.print(f"rollouts by transformers: {answer.reason}", highlight=False, soft_wrap=True)
        rollouts = ("transformers",)
    found = plans(shape, work, machine, rollouts or ("colocate", "server"))
    if not found:
        raise SwiftGrpoExtError(
            "a rollout server needs GPUs of its own",
            where="--rollout server",
            fix="--gpus 2 or more, or colocate",
        )
    console.print(_table(found[:SHOWN]))
    if not found[0].fits:
        console.print("[red]No setting fits.[/red] The nearest fails because of:")
        for objection in found[0].objections:
            console.print(f"  {objection.what} -> {objection.fix}", highlight=False, soft_wrap=True)
        _print_reports(model, work, machine, console)
        return False
    _print_reports(model, work, machine, console)
    if output is not None:
        written = script.write(output, loadable(model), shape, work, found[0], machine)
        written.append(plot(found[:SHOWN], machine, output / "plan.png"))
        console.print("written: " + ", ".join(map(str, written)), soft_wrap=True, highlight=False)
    return True


def _print_reports(model: str, work: Work, machine: Machine, console: Console) -> None:
    """Why settings that people reported for this model fail here."""
    for report in reported.of_model(model, work):
        console.print(f"Reported: {report.what} ({report.link}). It fails because of:", soft_wrap=True)
        for reason in reported.reasons(report, machine):
            console.print(f"  {reason}", highlight=False, soft_wrap=True)


def _table(found: list[Plan]) -> Table:
    table = Table(title="fastest first; speed and memory by arithmetic")
    headings = ["setting", "batch", "GPU GiB", "fullest", "CPU GiB", "speed"]
    if not all(plan.fits for plan in found):
        headings.append("fails because")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    best = max((plan.speed for plan in found if plan.fits), default=1.0)
    for plan in found:
        cells = [
            label(plan),
            f"{plan.setting.micro_batch} x {plan.setting.accumulation}",
            f"{plan.budget.peak / GIB:.1f}",
            plan.budget.peak_phase,
            f"{plan.budget.cpu_total / GIB:.0f}",
            f"{plan.speed / best:.2f}" if plan.fits else "-",
            plan.objections[0].what if plan.objections else "",
        ]
        table.add_row(*cells[: len(headings)], style="" if plan.fits else "red")
    return table


def label(plan: Plan) -> str:
    """A setting in a few words."""
    setting = plan.setting
    words = [setting.preset or "one GPU", setting.rollout]
    if setting.rollout != "transformers":
        words.append(f"TP {setting.tensor_parallel}")
    if setting.rollout == "colocate":
        words.append(f"util {setting.utilization:.2f}")
    if setting.move_model_batches:
        words.append(f"sync in {setting.move_model_batches} parts")
    if setting.offload_model:
        words.append("offload")
    return ", ".join(words)


def plot(found: list[Plan], machine: Machine, path: Path) -> Path:
    """Stacked bars of each setting's fullest phase, with the GPU's limit as a line.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib is missing", fix='pip install "swift-grpo-ext[report]"') from None
    figure = Figure(figsize=(11, 1.6 + 0.5 * len(found)), layout="constrained")
    axes = figure.subplots()
    peaks: list[Counter[str]] = [Counter() for _ in found]
    for peak, plan in zip(peaks, found, strict=True):
        for term in plan.budget.phases[plan.budget.peak_phase]:
            peak[term.name] += int(term.bytes)
    left = [0.0] * len(found)
    rows = [label(plan) for plan in found]
    for name, _ in sum(peaks, Counter()).most_common():
        widths = [peak[name] / GIB for peak in peaks]
        axes.barh(rows, widths, left=left, label=name)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.axvline(machine.usable / GIB, color="black", linestyle="--", label="usable")
    axes.invert_yaxis()
    axes.set_xlabel("GiB on one GPU in the fullest phase")
    figure.legend(loc="outside upper center", ncols=4, fontsize="small")
    figure.savefig(path, dpi=120)
    return path
