"""scikit-learn's handwritten digits as a vision-language dataset: PNG files and the host's JSONL."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from swift_grpo_ext.errors import MissingExtraError

QUESTION = "Which digit is this?"
_HELD_OUT = 360


@dataclass(frozen=True)
class Digits:
    """Where a digits dataset lies: JSONL of the training rows, and of the held-out ones."""

    train: Path
    test: Path


def digits_dataset(folder: str | Path, *, side: int = 56, limit: int | None = None, seed: int = 0) -> Digits:
    """Write the 1,797 real digit images of 8 x 8 pixels, enlarged, with a question and the answer.

    Every row has ``messages`` (the question, and the digit as the assistant's answer, which the host takes
    out for GRPO), ``images`` (absolute path of the PNG), and for rewards ``options`` (the ten digits) and
    ``solution`` (the right one). Images are ``side`` pixels wide and high. With a ``limit`` only so many are
    used, a quarter of them held out; of all, 360 are.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    try:
        import numpy as np
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtraError(
            "scikit-learn is not installed", where="digits_dataset", fix="pip install scikit-learn"
        ) from None
    digits = load_digits()
    root = Path(folder).resolve()
    (root / "images").mkdir(parents=True, exist_ok=True)
    rows = []
    for number, place in enumerate(np.random.default_rng(seed).permutation(len(digits.target))[:limit]):
        path = root / "images" / f"{number:04}.png"
        ink = digits.images[place]  # 0 (paper) to 16
        image = Image.fromarray((255 - np.round(ink * 255 / 16)).astype("uint8"))
        image.resize((side, side), Image.Resampling.BICUBIC).convert("RGB").save(path)
        label = str(digits.target[place])
        question = {"role": "user", "content": f"<image>{QUESTION}"}
        row = {"messages": [question, {"role": "assistant", "content": label}], "images": [str(path)]}
        rows.append({**row, "options": [str(digit) for digit in range(10)], "solution": label})
    held_out = _HELD_OUT if limit is None else len(rows) // 4
    return Digits(
        train=_write_jsonl(root / "train.jsonl", rows[held_out:]),
        test=_write_jsonl(root / "test.jsonl", rows[:held_out]),
    )


def _write_jsonl(path: Path, rows: Sequence[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
