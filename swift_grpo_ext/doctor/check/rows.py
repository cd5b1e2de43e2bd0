"""Looks at the first rows of local datasets: images, tags, columns of the rewards, gold against garbage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from swift_grpo_ext.doctor.check import encoded
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Finding, Severity

_MOST_BYTES = 64 * 2**20
_GARBAGE = ("", "I do not know.")
Row = dict[str, Any]


def findings(run: Run, limit: int) -> list[Finding]:
    """What is wrong with the first rows of each local dataset."""
    found: list[Finding] = []
    for name in run.arguments.dataset or []:
        path = (run.folder / Path(name.split("#")[0]).expanduser()).resolve()
        if path.suffix in (".jsonl", ".json") and path.is_file():
            found += _of_file(run, path, limit)
    return found


def _of_file(run: Run, path: Path, limit: int) -> Iterator[Finding]:
    read: list[Row] = []
    sound: list[tuple[str, Row]] = []
    for number, row in islice(_rows(path), limit):
        where = f"{path.name}:{number}"
        if row is None:
            yield Finding(
                "row-unreadable", Severity.ERROR, "the row is no JSON object", where, "mend the line"
            )
            continue
        read.append(row)
        faults = list(_images(row, where, path.parent))
        yield from faults
        if not faults:
            sound.append((where, row))
    yield from _rewards(run, read, path.name)
    yield from encoded.findings(run, sound)


def _rows(path: Path) -> Iterator[tuple[int, Row | None]]:
    """Rows with their line numbers; None for one that is no object."""
    if path.suffix == ".json":
        if path.stat().st_size > _MOST_BYTES:
            return
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            table = [None]
        for number, row in enumerate(table if isinstance(table, list) else [table], start=1):
            yield number, row if isinstance(row, dict) else None
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    row = json.loads(line)
                except ValueError:
                    row = None
                yield number, row if isinstance(row, dict) else None


def _images(row: Row, where: str, folder: Path) -> Iterator[Finding]:
    images = row.get("images") or row.get("image") or []
    images = images if isinstance(images, list) else [images]
    text = "".join(
        str(turn.get("content", "")) for turn in row.get("messages") or [] if isinstance(turn, dict)
    ) or str(row.get("query") or "")
    tags = text.count("<image>")
    if tags and tags != len(images):
        yield Finding(
            "row-tags",
            Severity.ERROR,
            f"{tags} <image> tags for {len(images)} images",
            where,
            "one tag per image, in order",
        )
    for image in images:
        fault = _image_fault(image, folder)
        if fault:
            yield Finding("row-image", Severity.ERROR, fault, where, "mend or drop the row")


def _image_fault(image: Any, folder: Path) -> str:
    """Why a local image cannot be used; empty if it can, or if it is not a local file."""
    from PIL import Image, UnidentifiedImageError

    name = image.get("path") if isinstance(image, dict) else image
    if not isinstance(name, str) or name.startswith(("http:", "https:", "data:")) or len(name) > 4096:
        return ""
    path = Path(name) if Path(name).is_absolute() or Path(name).exists() else folder / name
    if not path.is_file():
        return f"image {name} is not there"
    try:
        with Image.open(path) as opened:
            opened.verify()
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        return f"image {name} does not open: {type(error).__name__}"
    return ""


def _rewards(run: Run, read: list[Row], where: str) -> Iterator[Finding]:
    """Each reward of our catalogue must find its gold, give it the maximum, and garbage less."""
    from swift_grpo_ext.rewards import catalogue

    for name in run.arguments.reward_funcs or []:
        if name not in catalogue.NAMES or not read:
            continue
        reward = catalogue.get_reward(name)
        if reward.gold and not any(row.get(column) for row in read for column in reward.gold):
            yield Finding(
                "reward-column",
                Severity.ERROR,
                f"{name} finds no gold in {len(read)} rows",
                where,
                f"a column {' or '.join(reward.gold)}",
            )
        elif reward.gold and reward.cost == "inline":
            yield from _gold_wins(reward, read, where)


def _gold_wins(reward: Any, read: list[Row], where: str) -> Iterator[Finding]:
    from swift_grpo_ext.rewards.contract import Unscorable
    from swift_grpo_ext.rewards.gold import gold_completion

    losing, scored = 0, 0
    for row in read:
        try:
            gold = reward(gold_completion(reward, row), row)
        except Unscorable:
            continue
        if gold is None:
            continue
        scored += 1
        garbage = max(reward(text, row) or 0 for text in _GARBAGE)
        losing += not gold > garbage
    if losing:
        yield Finding(
            "gold-does-not-win",
            Severity.ERROR,
            f"{reward.name} scores the gold answer no higher than garbage in {losing} of {scored} rows",
            where,
            "check the gold column against the reward's page",
        )
