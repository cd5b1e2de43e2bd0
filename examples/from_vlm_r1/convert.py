"""Rows of VLM-R1 to rows of ms-swift: ``python examples/from_vlm_r1/convert.py ROWS.jsonl OUT.jsonl``.

A row of VLM-R1 has ``image`` (a path or a list of them) and ``conversations``; one of ms-swift has
``messages``, ``images``, and for the rewards ``solution``, always as text. Paths stay as they are: set
ROOT_IMAGE_DIR to what was ``--image_folders``. What else a row has is kept, so that reward parameters and the
reward table can use it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

TAG = "<image>"
ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


class RowError(ValueError):
    """A row that is not of VLM-R1's format."""


def converted(row: Any, task: str = "") -> dict[str, Any]:
    """One row.

    Args:
        row: As VLM-R1 has it.
        task: Value of the column ``task``, for a reward table that routes by it; none if empty.

    Raises:
        RowError: No conversation that ends with an answer, or more ``<image>`` tags than images.
    """
    asked, answer = _turns(row)
    messages = [{"role": ROLES[turn["from"]], "content": str(turn["value"])} for turn in asked]
    image = row.get("image") or []
    images = image if isinstance(image, list) else [image]
    if not all(isinstance(path, str) for path in images):
        raise RowError("image is no path and no list of paths")
    _tag_images(messages, len(images))
    others = {name: value for name, value in row.items() if name not in ("conversations", "image", "id")}
    made = {**others, "messages": messages, "images": images, "solution": gold(answer["value"])}
    return {**made, "task": task} if task else made


def _turns(row: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The turns that ask, and the one that answers."""
    turns = row.get("conversations") if isinstance(row, dict) else None
    if not isinstance(turns, list) or not turns or not all(map(_is_turn, turns)):
        raise RowError(f"needs conversations of turns with value and from: {', '.join(ROLES)}")
    *asked, answer = turns
    if answer["from"] != "gpt" or all(turn["from"] != "human" for turn in asked):
        raise RowError("needs a turn of human, and at the end one of gpt")
    return asked, answer


def _is_turn(turn: Any) -> bool:
    return isinstance(turn, dict) and "value" in turn and turn.get("from") in tuple(ROLES)


def gold(value: Any) -> str:
    """The gold answer as text: without ``<answer>`` tags, numbers and boxes written as JSON."""
    if isinstance(value, str):
        return value.replace("<answer>", "").replace("</answer>", "").strip()
    return json.dumps(value, ensure_ascii=False)


def _tag_images(messages: list[dict[str, str]], images: int) -> None:
    """VLM-R1 puts all images before the question, whatever tags it has; here each needs its tag."""
    tags = sum(message["content"].count(TAG) for message in messages)
    if tags > images:
        raise RowError(f"{tags} {TAG} tags for {images} images")
    first = next(message for message in messages if message["role"] == "user")
    first["content"] = TAG * (images - tags) + first["content"]


def main() -> int:
    """Convert a file; the exit status is 1 if rows were left out, 2 if a file cannot be read or written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--task", default="", help="value of the column task")
    options = parser.parse_args()
    try:
        with (
            options.source.open(encoding="utf-8-sig") as source,
            options.target.open("w", encoding="utf-8") as target,
        ):
            left_out = _convert(source, target, options)
    except OSError as error:
        parser.error(str(error))
    return int(left_out > 0)


def _convert(source: Iterable[str], target: TextIO, options: argparse.Namespace) -> int:
    """Convert line by line; how many were left out."""
    left_out = 0
    for number, line in enumerate(source, start=1):
        if not line.strip():
            continue
        try:
            row = converted(json.loads(line), options.task)
        except ValueError as fault:  # no JSON, or a RowError
            left_out += 1
            print(f"{options.source}:{number}: left out: {fault}", file=sys.stderr)
        else:
            target.write(json.dumps(row, ensure_ascii=False) + "\n")
    return left_out


if __name__ == "__main__":
    sys.exit(main())
