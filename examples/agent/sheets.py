"""Sheets of four handwritten digits, as rows of two turns."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from examples.agent.scheduler import CORNERS, LOOK, cut
from swift_grpo_ext import testing

PLACES = ("upper left", "upper right", "lower left", "lower right")  # what questions call the corners
SIDE = 56  # pixels of a corner in full size, and of the whole sheet as it is shown
UNREADABLE = 6  # pixels of the whole sheet that are left of it there


@dataclass(frozen=True)
class Sheets:
    """JSONL files: training sheets as dialogues, to learn the form from, and the questions of all sheets."""

    dialogues: Path
    questions: testing.Digits


def sheets_dataset(folder: Path, *, train: int = 1200, test: int = 240, seed: int = 0) -> Sheets:
    """Write so many sheets of training digits, and of held-out ones.

    A row has ``messages``, ``images`` (the sheet as it is shown), ``sheet`` (file of the sheet in full size),
    and ``solution`` for the reward.
    """
    digits = testing.digits_dataset(folder / "digits", side=SIDE, seed=seed)
    chosen = random.Random(seed)
    rows = {}
    for name, source, count in (("train", digits.train, train), ("test", digits.test, test)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        known = testing.read_jsonl(source)
        rows[name] = [
            _row(folder / name / f"{number:04}", chosen.sample(known, 4), chosen) for number in range(count)
        ]
    questions = {
        name: [{**row, "messages": row["messages"][:1], "images": row["images"][:1]} for row in of_name]
        for name, of_name in rows.items()
    }
    return Sheets(
        dialogues=_write(folder / "dialogues.jsonl", rows["train"]),
        questions=testing.Digits(
            train=_write(folder / "train.jsonl", questions["train"]),
            test=_write(folder / "test.jsonl", questions["test"]),
        ),
    )


def _row(path: Path, digits: Sequence[dict[str, Any]], chosen: random.Random) -> dict[str, Any]:
    """One sheet with its dialogue: the corner that the question asks about, and the digit in it."""
    sheet = Image.new("RGB", (2 * SIDE, 2 * SIDE), "white")
    for corner, digit in enumerate(digits):
        row, column = divmod(corner, 2)
        sheet.paste(Image.open(digit["images"][0]), (column * SIDE, row * SIDE))
    full = f"{path}_full.png"
    sheet.save(full)
    shown = f"{path}.png"
    sheet.resize((UNREADABLE, UNREADABLE)).resize((SIDE, SIDE)).save(shown)
    asked = chosen.randrange(4)
    answer = digits[asked]["solution"]
    return {
        "messages": [
            {"role": "user", "content": f"<image>Which digit is in the {PLACES[asked]} corner?"},
            {"role": "assistant", "content": CORNERS[asked]},
            {"role": "user", "content": LOOK},
            {"role": "assistant", "content": answer},
        ],
        "images": [shown, cut(full, CORNERS[asked])],
        "sheet": full,
        "solution": answer,
    }


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
