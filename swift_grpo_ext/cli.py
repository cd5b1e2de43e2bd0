"""The ``swift-grpo-ext`` command. Each command loads what it needs when it is called."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from swift_grpo_ext.doctor.plan.setting import USUAL_PIXELS
from swift_grpo_ext.errors import SettingsError, SwiftGrpoExtError
from swift_grpo_ext.settings import GONE_COMMANDS

app = typer.Typer(
    name="swift-grpo-ext",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut the names of options at 80 columns
)


class Tuner(StrEnum):
    """Choices of ``plan --tuner``."""

    LORA = "lora"
    FULL = "full"


def _print_version(wanted: bool) -> None:
    if wanted:
        from swift_grpo_ext.version import __version__

        print(f"swift-grpo-ext {__version__}")
        raise typer.Exit


@app.callback()
def every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it and exit.")
    ] = False,
) -> None:
    """Multimodal GRPO in ms-swift that is right, fast, and says so when it is not."""


@app.command(epilog='Example: swift rlhf --external_plugins "$(swift-grpo-ext path)" ...')
def path(
    part: Annotated[
        str, typer.Argument(help="all, compat, templates, trainer, rewards, presets or callbacks.")
    ] = "all",
) -> None:
    """Print the plugin file for ms-swift's --external_plugins."""
    from swift_grpo_ext.plugin_files import plugin_file

    print(plugin_file(part))


@app.command(epilog="Example: swift-grpo-ext env")
def env(
    show_all: Annotated[bool, typer.Option("--all", help="Print what becomes of each patch, too.")] = False,
) -> None:
    """Print the versions that matter, whether they fit (exit code 2 if not), GPUs and settings.

    \f

    Raises:
        typer.Exit: With the exit code.
    """
    from swift_grpo_ext.doctor.env import print_environment

    if not print_environment(patches=show_all):
        raise typer.Exit(2)


@app.command(epilog="Example: swift-grpo-ext report output/run")
def report(
    output_dirs: Annotated[
        list[str], typer.Argument(help="The --output_dir of a GRPO run, finished or not; several to compare.")
    ],
    to: Annotated[
        str | None, typer.Option(help="Folder to write to; default the run's own, or grpo-comparison.")
    ] = None,
    completions: Annotated[int, typer.Option(min=1, help="Completions of each run to show.")] = 5000,
) -> None:
    """Write report.html of GRPO runs of ms-swift, finished or not."""
    from swift_grpo_ext.watch.report import write_report

    written = write_report(output_dirs, to, completions=completions)
    for verdict in written.verdicts:
        print(verdict.headline)
    print(written.html)


@app.command(
    context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
    epilog="Example: swift-grpo-ext plan --model Qwen2.5-VL-72B --gpus 8 --gpu-memory 80",
)
def plan(
    model: Annotated[str, typer.Option(help="Folder with a config.json, a published size, or a model_type.")],
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of one node.")] = 8,
    nodes: Annotated[int, typer.Option(min=1, help="Machines, each with that many GPUs.")] = 1,
    gpu_memory: Annotated[float, typer.Option(min=1, max=10_000, help="GiB of one GPU.")] = 80,
    tuner: Annotated[Tuner, typer.Option(case_sensitive=False, help="lora or full.")] = Tuner.LORA,
    lora_rank: Annotated[int, typer.Option(min=1, help="Rank of LoRA.")] = 32,
    batch: Annotated[int, typer.Option(min=1, help="Completions of a micro-batch.")] = 1,
    num_generations: Annotated[int, typer.Option(min=2, help="Completions of one prompt.")] = 8,
    max_pixels: Annotated[int, typer.Option(min=1, help="Pixels of one resized image.")] = USUAL_PIXELS,
    images: Annotated[int, typer.Option(min=0, help="Images per prompt.")] = 1,
    text_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a prompt without images.")] = 256,
    max_completion_length: Annotated[int, typer.Option(min=1, help="Tokens of a completion.")] = 1024,
    beta: Annotated[float, typer.Option(min=0, help="Weight of the KL term; 0: no reference.")] = 0.04,
    sharing: Annotated[bool, typer.Option(help="Prompts are shared; ms-swift alone does not.")] = True,
    bf16: Annotated[bool | None, typer.Option(help="The GPUs compute in bf16; V100 and T4 do not.")] = None,
) -> None:
    """Four layouts in one table: what fits, by how much, what helps (exit code 2 if none fits).

    \f

    Raises:
        typer.Exit: With the exit code.
    """
    from swift_grpo_ext.doctor.plan import command, setting

    work = setting.Work(
        full=tuner is Tuner.FULL,
        lora_rank=lora_rank,
        generations=num_generations,
        text_tokens=text_tokens,
        images=images,
        max_pixels=max_pixels,
        completion_tokens=max_completion_length,
        kl=beta > 0,
    )
    machine = setting.Machine(nodes, gpus, gpu_memory)
    if not command.run(model, work, machine, batch=batch, shares=sharing, bf16=bf16):
        raise typer.Exit(2)


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "token_normalize_func": lambda name: name.replace(
            "_", "-"
        ),  # our own options with underscores: --gpu_memory
    },
    options_metavar="[OPTIONS] SCRIPT, or the arguments of swift rlhf",
    epilog="Example: swift-grpo-ext check --gpu-memory 80 train.sh",
)
def check(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Rows of each dataset to look at.")] = 32,
    gpu: Annotated[float, typer.Option("--gpu-memory", help="GiB of one GPU; 0 if unknown.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Do not ask ms-swift itself (ten seconds).")] = False,
) -> None:
    """Check swift rlhf's arguments, or a script: exit 0, 1 (warnings), 2 (will fail), 3 (not checked).

    \f

    Raises:
        typer.Exit: With the exit code.
    """
    from swift_grpo_ext.doctor.check import command

    code = command.check(
        context.args,
        as_json=json,
        quick=quick,
        row_limit=0 if quick else rows,  # ms-swift reads them
        gpu_memory=gpu,
    )
    raise typer.Exit(code)


@app.command(epilog="Example: swift-grpo-ext score rows.jsonl --reward ext_iou --gold")
def score(
    data: Annotated[Path, typer.Argument(help="Dataset, JSONL.")],
    reward: Annotated[list[str], typer.Option(help="ext_iou ...; several: give it again.")],
    completions: Annotated[Path | None, typer.Option(help="One per row, as swift infer writes them.")] = None,
    gold: Annotated[bool, typer.Option("--gold", help="Score the gold answers: all must be best.")] = False,
    table: Annotated[str, typer.Option(help="Parameters, tasks, golds: JSON, or a path to it.")] = "",
    plugin: Annotated[list[str] | None, typer.Option(help="File with rewards of your own.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for scores.jsonl.")] = None,
) -> None:
    """Score completions, or gold answers, without a run (exit code 1 if a gold answer is not best).

    \f

    Raises:
        typer.Exit: With the exit code.
    """
    from swift_grpo_ext.rewards.offline import command

    well = command.run(
        data,
        reward,
        completions=completions,
        gold=gold,
        table=table,
        plugins=plugin or [],
        output=output,
    )
    if not well:
        raise typer.Exit(1)


@app.command(name="convert-ovis2", epilog="Example: swift-grpo-ext convert-ovis2 Ovis2-1B Ovis2-1B-hf")
def convert_ovis2(
    source: Annotated[str, typer.Argument(help="Folder of an original AIDC-AI/Ovis2 checkpoint.")],
    target: Annotated[str, typer.Argument(help="Folder to write; missing or empty.")],
) -> None:
    """Convert an original Ovis2 checkpoint (remote code) to transformers' own class."""
    from swift_grpo_ext.models.ovis2_convert import convert_checkpoint

    print(convert_checkpoint(source, target))


def refuse_gone(words: Sequence[str]) -> None:
    """Refuse a command of an earlier version, or an option of one.

    Raises:
        SettingsError: It is gone; the error says what to do instead.
    """
    for name in (*words[:1], *(f"{words[0]} {word}" for word in words[1:])):
        if name in GONE_COMMANDS:
            raise SettingsError("this command is gone", where=name, fix=GONE_COMMANDS[name])


def main() -> None:
    """Entry of the console script: an error of ours, or of a file, is one line on stderr and exit code 2."""
    try:
        refuse_gone(sys.argv[1:])
        app()
    except (SwiftGrpoExtError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
