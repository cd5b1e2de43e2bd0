"""The command: runs the cases and prints the table of equalities."""

import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from rich.console import Console
from rich.table import Table

from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.folders import made_folder
from swift_grpo_ext.testing.selftest.cases import FAMILIES, Case, cases
from swift_grpo_ext.testing.selftest.runs import Bench, Comparison, find

COLUMNS = ("loss", "grad_norm", "kl", "parameters", "reference", "log_ratio", "clipped")


def selftest(families: Sequence[str] = FAMILIES, only: str = "", folder: Path | None = None) -> bool:
    """Run the equivalence suite on tiny models of `FAMILIES` and print what it found; True if no equality is
    violated. ``only`` cases with that in their name run; an empty ``folder`` keeps the runs and their log.
    """
    chosen = [case for case in cases() if only in case.name]
    unknown = [family for family in families if family not in FAMILIES]
    if unknown or not chosen:
        what, known = (unknown[0], FAMILIES) if unknown else (only, [case.name for case in cases()])
        raise SwiftGrpoExtError(f"selftest knows no {what!r}", fix=f"one of: {'; '.join(known)}")
    if folder is not None and folder.is_dir() and any(folder.iterdir()):
        raise SwiftGrpoExtError("selftest needs an empty folder", where=str(folder), fix="another --folder")
    console = Console(file=sys.stdout)
    console.width = max(console.width, 140)  # a file or a pipe has no width, and rows must stay rows
    with tempfile.TemporaryDirectory() as temporary:
        root = made_folder(folder or Path(temporary), "--folder").resolve()
        comparisons = {family: list(_findings(family, chosen, root, console)) for family in families}
    for family, found in comparisons.items():
        console.print(_table(family, found))
    violated = sum(comparison.violated for found in comparisons.values() for comparison in found)
    verdict = f"{violated} equalities are VIOLATED." if violated else "No equality is violated."
    console.print(verdict, style="bold red" if violated else "bold green")
    return not violated


def _findings(family: str, chosen: Sequence[Case], root: Path, console: Console) -> Iterator[Comparison]:
    with _quiet(root / f"{family}.log"):
        bench = _bench(family, root / family)
        for number, case in enumerate(chosen, start=1):
            console.print(f"{family} {number}/{len(chosen)}  {case.name}", highlight=False)
            yield find(case, bench)


def _bench(family: str, folder: Path) -> Bench:
    from swift_grpo_ext import testing

    return Bench(
        model=testing.tiny_checkpoint(family, folder / "model"),
        dataset=testing.digits_dataset(folder / "digits", limit=32).train,
        folder=folder,
    )


@contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """What ms-swift says goes to a file."""
    with open(log, "a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        logging.getLogger("swift").propagate = False
        yield


def _table(family: str, comparisons: Sequence[Comparison]) -> Table:
    shown = [name for name in COLUMNS if any(name in comparison.differences for comparison in comparisons)]
    table = Table(title=f"selftest, tiny {family}: largest differences")
    table.add_column("equality")
    for name in shown:
        table.add_column(name, justify="right")
    table.add_column("verdict", overflow="fold")
    for comparison in comparisons:
        far = comparison.differences
        figures = [f"{far[name]:.1e}" if name in far else "" for name in shown]
        style = "red" if comparison.violated else ""
        table.add_row(comparison.case.name, *figures, _verdict(comparison), style=style)
    return table


def _verdict(comparison: Comparison) -> str:
    if comparison.case.differs:
        return f"by definition: {comparison.case.differs}"
    if comparison.error:
        return f"VIOLATED: {comparison.error}"
    verdict = "VIOLATED" if comparison.violated else "equal"
    return f"{verdict}; {comparison.case.note}" if comparison.case.note else verdict
