"""Writes the figures of Megatron's cells into docs/megatron.md, from the results of their tests.

python tools/megatron_cells.py RESULTS.xml ...

Results are what ``pytest tests/megatron/test_trainer.py --junitxml RESULTS.xml`` leaves. A cell that they do
not have keeps its row; one that was never measured has none.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for tests

from tests.megatron.table import CELLS

PAGE = Path(__file__).parents[1] / "docs" / "megatron.md"
HEAD = (
    "| cell | ranks | from ms-swift's Megatron: log-probs, gradient | from transformers |\n|---|---|---|---|"
)
ROWS = re.compile(re.escape(HEAD) + r"\n((?:\|.*\n)*)")
NONE = "-"


def figures(text: str | None) -> str:
    """Of a comparison, as in the table; a dash where there was none."""
    if text is None:
        return NONE
    apart = json.loads(text)
    return f"{apart['log_probs']:.0e}, {apart['gradient']:.0e}"


def rows_of(results: Path) -> dict[str, str]:
    """Rows of the cells whose tests passed, by the cell."""
    made = {}
    for case in ElementTree.parse(results).iter("testcase"):
        written = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
        title = (case.get("name") or "").partition(", ")[2].removesuffix("]")
        if "stock" in written and title in CELLS:
            ranks = CELLS[title].ranks
            stock, transformers = figures(written["stock"]), figures(written.get("transformers"))
            made[title] = f"| {title} | {ranks} | {stock} | {transformers} |"
    return made


def main(results: list[Path]) -> None:
    """Write the table, in the order of `CELLS`.

    Raises:
        SystemExit: The page has no such table.
    """
    page = PAGE.read_text(encoding="utf-8")
    table = ROWS.search(page)
    if table is None:
        sys.exit(f"{PAGE} has no table of cells")
    rows = {row.split("|")[1].strip(): row for row in table[1].splitlines()}
    for file in results:
        rows |= rows_of(file)
    lines = [rows[title] for title in CELLS if title in rows]
    PAGE.write_text(page.replace(table[0], "\n".join([HEAD, *lines, ""])), encoding="utf-8")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
