"""The ``swift-grpo-ext`` command. Each command loads what it needs when it is called."""

from __future__ import annotations

import sys
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


def main() -> None:
    """Entry of the console script: an error of ours is one line on stderr and exit code 2."""
    try:
        app()
    except SwiftGrpoExtError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
