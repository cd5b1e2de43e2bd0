"""``swift-grpo-ext env``: the relevant package versions, and if they fit together."""

import platform

from rich.console import Console
from rich.table import Column, Table

from swift_grpo_ext.doctor.gpus import gpus_in_words
from swift_grpo_ext.parts import check_disabled
from swift_grpo_ext.settings import load_settings
from swift_grpo_ext.version import __version__
from swift_grpo_ext.versions import package_facts


def print_environment(console: Console | None = None, *, patches: bool = False) -> bool:
    """Print the table, GPUs and verdict, with ``patches`` each patch's state, too; True if versions fit."""
    console = console or Console()
    settings = load_settings()
    check_disabled(settings.disable)
    facts = package_facts()
    title = f"swift-grpo-ext {__version__}, Python {platform.python_version()}"
    table = _table(title, "package", "installed", "supported", "for", "")
    for fact in facts:
        table.add_row(
            fact.name,
            fact.installed or "-",
            fact.supported or "any",
            fact.purpose,
            fact.tested,
            style="red" if fact.problem else "",
        )
    console.print(table)
    if patches:
        console.print(_patch_table())
    for line in gpus_in_words():
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    for name, value in settings.model_dump(exclude_defaults=True).items():
        console.print(f"setting {name} = {value}")
    problems = [fact for fact in facts if fact.problem]
    for fact in problems:
        console.print(f"[red]{fact.problem}[/red] -> {fact.fix}", soft_wrap=True, highlight=False)
    console.print(
        "These versions do not fit together." if problems else "These versions fit together.", style="bold"
    )
    return not problems


def _table(title: str, *headings: str) -> Table:
    return Table(*(Column(heading, overflow="fold") for heading in headings), title=title)


def _patch_table() -> Table:
    """The final state of each patch; imports the packages that patches wait for."""
    from swift_grpo_ext.compat.registry import apply_all, import_what_is_awaited, outcomes

    apply_all()
    import_what_is_awaited()
    table = _table("patches", "patch", "state", "why")
    for outcome in outcomes():
        table.add_row(outcome.patch.id, outcome.state, outcome.reason)
    return table
