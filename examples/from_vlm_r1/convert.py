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
from pathlib import Path
from typing import Any

TAG = "<image>"
ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


class RowError(ValueError):
    """A row that is not of VLM-R1's format."""


def converted(row: dict[str, Any], task: str = "") -> dict[str, Any]:
    """One row.

    Args:
        row: As VLM-R1 has it.
        task: Value of the column ``task``, for a reward table that routes by it; none if empty.

    Raises:
        RowError: No conversation that ends with an answer, or more ``<image>`` tags than images.
    """
    turns = row.get("conversations")
    if not (isinstance(turns, list) and len(turns) >= 2 and turns[-1].get("from") == "gpt"):
        raise RowError("needs conversations that end with a turn of gpt")
    *asked, answer = turns
    messages = [{"role": ROLES[turn["from"]], "content": str(turn["value"])} for turn in asked]
    image = row.get("image", [])
    images = [image] if isinstance(image, str) else list(image)
    _tag_images(messages, len(images))
    others = {name: value for name, value in row.items() if name not in ("conversations", "image", "id")}
    made = {**others, "messages": messages, "images": images, "solution": gold(answer["value"])}
    return {**made, "task": task} if task else made


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
    """Convert a file; the exit status is 1 if rows were left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--task", default="", help="value of the column task")
    options = parser.parse_args()
    left_out = 0
    with (
        options.source.open(encoding="utf-8") as source,
        options.target.open("w", encoding="utf-8") as target,
    ):
        for number, line in enumerate(source, start=1):
            if not line.strip():
                continue
            try:
                row = converted(json.loads(line), options.task)
            except (ValueError, KeyError, AttributeError) as fault:
                left_out += 1
                print(f"{options.source}:{number}: left out: {fault!r}", file=sys.stderr)
            else:
                target.write(json.dumps(row, ensure_ascii=False) + "\n")
    return int(left_out > 0)


if __name__ == "__main__":
    sys.exit(main())
