"""The ``swift-grpo-ext`` command. Each command loads what it needs when it is called."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from swift_grpo_ext.errors import SwiftGrpoExtError

app = typer.Typer(
    name="swift-grpo-ext",
    help="Multimodal GRPO in ms-swift that is right, fast, and says so when it is not.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def path(part: Annotated[str, typer.Argument(help="One part, or all of them.")] = "all") -> None:
    """Print the plugin file for ms-swift's --external_plugins."""
    from swift_grpo_ext.plugin_files import plugin_file

    print(plugin_file(part))


@app.command()
def env() -> None:
    """Print the versions that matter and whether they fit together (exit code 2 if they do not)."""
    from swift_grpo_ext.doctor.env import print_environment

    if not print_environment():
        raise typer.Exit(2)


@app.command()
def report(
    output_dir: Annotated[str, typer.Argument(help="The --output_dir of a GRPO run, finished or not.")],
    to: Annotated[str | None, typer.Option(help="Folder to write to; default the run's own.")] = None,
) -> None:
    """Write report.html and plots/*.png of a GRPO run of ms-swift."""
    from swift_grpo_ext.watch.report import write_report

    written = write_report(output_dir, to)
    print(written.verdict.headline)
    print(written.html)


@app.command()
def plan(
    model: Annotated[str, typer.Option(help="Folder with a config.json, or the id of a bundled size.")],
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of one node.")] = 8,
    nodes: Annotated[int, typer.Option(min=1)] = 1,
    gpu_memory: Annotated[float, typer.Option(min=1, help="GiB of one GPU.")] = 80,
    cpu_memory: Annotated[float, typer.Option(min=0, help="GiB of one node; 0 if unknown.")] = 0,
    tuner: Annotated[str, typer.Option(help="lora or full.")] = "lora",
    lora_rank: Annotated[int, typer.Option(min=1)] = 8,
    num_generations: Annotated[int, typer.Option(min=1)] = 8,
    max_pixels: Annotated[int, typer.Option(min=1, help="Pixels of one resized image.")] = 1_003_520,
    images: Annotated[int, typer.Option(min=0, help="Images per prompt.")] = 1,
    text_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a prompt without images.")] = 256,
    max_completion_length: Annotated[int, typer.Option(min=1)] = 1024,
    beta: Annotated[float, typer.Option(min=0)] = 0.04,
    rollout: Annotated[str, typer.Option(help="colocate, server or transformers; default: both vLLM.")] = "",
    output: Annotated[str | None, typer.Option(help="Folder for script, JSON and plot.")] = None,
) -> None:
    """Rank the settings that fit by arithmetic; write the fastest as a launch script."""
    from swift_grpo_ext.doctor.plan import command
    from swift_grpo_ext.doctor.plan.setting import ROLLOUTS, Machine, Work

    if tuner not in ("lora", "full"):
        raise typer.BadParameter("lora or full", param_hint="--tuner")
    rollouts = tuple(name for name in ROLLOUTS if name == rollout or (not rollout and name != "transformers"))
    if not rollouts:
        raise typer.BadParameter(", ".join(ROLLOUTS), param_hint="--rollout")
    work = Work(
        full=tuner == "full",
        lora_rank=lora_rank,
        generations=num_generations,
        text_tokens=text_tokens,
        images=images,
        max_pixels=max_pixels,
        completion_tokens=max_completion_length,
        kl=beta > 0,
    )
    machine = Machine(nodes=nodes, gpus_per_node=gpus, gpu_memory=gpu_memory, cpu_memory=cpu_memory)
    if not command.run(model, work, machine, rollouts=rollouts, output=Path(output) if output else None):
        raise typer.Exit(2)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def check(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Rows of each dataset to look at.")] = 32,
    gpu_memory: Annotated[float, typer.Option("--gpu-memory", help="GiB of one GPU; 0 if unknown.")] = 0,
) -> None:
    """Check the arguments of swift rlhf, or a launch script: exit code 0, 1 (warnings), 2 (will fail)."""
    from swift_grpo_ext.doctor.check import command

    raise typer.Exit(command.check(context.args, as_json=json, row_limit=rows, gpu_memory=gpu_memory))


@app.command(name="convert-ovis2")
def convert_ovis2(
    source: Annotated[str, typer.Argument(help="Folder of an original AIDC-AI/Ovis2 checkpoint.")],
    target: Annotated[str, typer.Argument(help="Folder to write; missing or empty.")],
) -> None:
    """Convert an original Ovis2 checkpoint (remote code) to transformers' own class."""
    from swift_grpo_ext.models.ovis2_convert import convert_checkpoint

    print(convert_checkpoint(source, target))


@app.command()
def selftest(
    family: Annotated[list[str] | None, typer.Option(help="qwen2_5_vl or ovis2; both by default.")] = None,
    only: Annotated[str, typer.Option(help="Only the equalities whose name contains this.")] = "",
    folder: Annotated[Path | None, typer.Option(help="Keep the runs and their log here.")] = None,
) -> None:
    """Hold pairs of tiny CPU runs against each other that must be equal (exit code 1 if one is not)."""
    from swift_grpo_ext.testing.environment import cpu_environment

    os.environ.update(cpu_environment())  # before anything imports torch
    from swift_grpo_ext.doctor.selftest.cases import FAMILIES
    from swift_grpo_ext.doctor.selftest.report import selftest as run_selftest

    if not run_selftest(family or FAMILIES, only, folder):
        raise typer.Exit(1)


def main() -> None:
    """Entry of the console script: an error of ours is one line on stderr and exit code 2."""
    try:
        app()
    except SwiftGrpoExtError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
