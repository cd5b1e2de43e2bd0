"""Completions with their rows, as each reward meets them: what `rewards.py` measures."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WORDS = tuple("the image shows a red car next to an old tree where two people wait at noon".split(" "))  # noqa: SIM905

Row = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        reward: Its name.
        make: Draws a completion's answer and its row.
        what: What the answers hold.
        boxes: Predicted boxes in each completion.
        goal: Least completions, or boxes where there are some, per second.
    """

    reward: str
    make: Callable[[random.Random], Row]
    what: str
    boxes: int = 0
    goal: int = 0


def boxes(count: int) -> Callable[[random.Random], Row]:
    """As many labelled boxes as gold boxes, near them."""

    def make(rng: random.Random) -> Row:
        gold, predicted = [], []
        for _ in range(count):
            x, y = rng.randrange(800), rng.randrange(800)
            box = [x, y, x + rng.randrange(20, 200), y + rng.randrange(20, 200)]
            gold.append({"bbox_2d": box, "label": "car"})
            predicted.append({"bbox_2d": [value + rng.randrange(-5, 6) for value in box], "label": "car"})
        return f"```json\n{json.dumps(predicted)}\n```", {"solution": gold}

    return make


def point(rng: random.Random) -> Row:
    """A point, and a box that it is to lie in."""
    x, y = rng.randrange(800), rng.randrange(800)
    return f"({x + rng.randrange(60)}, {y + 10})", {"solution": [x, y, x + 40, y + 40]}


def click(rng: random.Random) -> Row:
    """A click, and the box of a button."""
    x, y = rng.randrange(800), rng.randrange(800)
    answer = {"action": "click", "coordinate": [x + rng.randrange(60), y + 10]}
    return json.dumps(answer), {"solution": {"action": "click", "bbox": [x, y, x + 40, y + 40]}}


def segments(rng: random.Random) -> Row:
    """A box with a point in it."""
    _, row = boxes(1)(rng)
    left, top, right, bottom = row["solution"][0]["bbox_2d"]
    gold = [{"bbox_2d": [left, top, right, bottom], "point_2d": [(left + right) // 2, (top + bottom) // 2]}]
    sizes = [{"original": [1000, 1000], "resized": [1008, 1008]}]
    return json.dumps(gold), {"solution": gold, "image_sizes": sizes}


def span(rng: random.Random) -> Row:
    """A span of time."""
    start = rng.random() * 100
    return f"from {start:.1f}s to {start + 9:.1f}s", {"solution": [start + 1, start + 8]}


def number(rng: random.Random) -> Row:
    """A number with a thousands separator and a unit."""
    value = rng.randrange(100_000)
    return f"about {value:,} km", {"solution": f"{value + rng.randrange(100)} km"}


def count(rng: random.Random) -> Row:
    """A small number."""
    return f"There are {rng.randrange(20)} cars.", {"solution": rng.randrange(20)}


def choice(rng: random.Random) -> Row:
    """A letter with its option's text."""
    options = ["a cat", "a dog", "a horse", "a cow"]
    letter = rng.randrange(4)
    return f"{'ABCD'[letter]}. {options[letter]}", {"solution": rng.choice("ABCD"), "options": options}


def yes_no(rng: random.Random) -> Row:
    """A polarity in a sentence."""
    return f"{rng.choice(['Yes', 'No'])}, it is.", {"solution": rng.choice(["yes", "no"])}


def text(words: int) -> Callable[[random.Random], Row]:
    """A text of so many words, a tenth of them misread."""

    def make(rng: random.Random) -> Row:
        gold = [rng.choice(WORDS) for _ in range(words)]
        read = [rng.choice(WORDS) if rng.random() < 0.1 else word for word in gold]
        return " ".join(read), {"solution": " ".join(gold)}

    return make


def fields(rng: random.Random) -> Row:
    """A receipt as JSON."""
    items = [{"name": rng.choice(WORDS), "price": rng.randrange(100)} for _ in range(4)]
    gold = {"total": rng.randrange(1000), "items": items}
    return json.dumps({**gold, "total": rng.randrange(1000)}), {"solution": json.dumps(gold)}


def table(rng: random.Random) -> Row:
    """A table of five rows and four columns."""
    cells = [[rng.choice(WORDS) for _ in range(4)] for _ in range(5)]
    gold = "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], ["---"] * 4, *cells[1:]])
    return gold.replace("car", "cat"), {"solution": gold}


def formula(rng: random.Random) -> Row:
    """A fraction."""
    a, b = rng.randrange(1, 50), rng.randrange(1, 50)
    return rf"\boxed{{\frac{{{2 * a}}}{{{2 * b}}}}}", {"solution": rf"\frac{{{a}}}{{{b}}}"}


def call(rng: random.Random) -> Row:
    """A tool call."""
    gold = {"name": "weather", "arguments": {"city": rng.choice(WORDS), "days": rng.randrange(9)}}
    return f"<tool_call>{json.dumps(gold)}</tool_call>", {"solution": gold}


def tokens(rng: random.Random) -> Row:
    """A completion with its token ids."""
    ids = [1] * rng.randrange(1, 400)
    return "B", {"response_token_ids": ids, "max_tokens": 256, "accuracy": 1.0, "solution": "B"}


CASES = (
    Case("ext_iou", boxes(1), "1 box", 1, goal=20_000),
    Case("ext_iou", boxes(10), "10 boxes", 10, goal=20_000),
    Case("ext_iou", boxes(50), "50 boxes", 50),
    Case("ext_giou", boxes(1), "1 box", 1),
    Case("ext_detection_f1", boxes(10), "10 boxes", 10),
    Case("ext_point_in_box", point, "a point"),
    Case("ext_click", click, "a click as JSON"),
    Case("ext_segmentation_points", segments, "a box and a point"),
    Case("ext_temporal_iou", span, "a span"),
    Case("ext_count", count, "a sentence"),
    Case("ext_count_shaped", count, "a sentence"),
    Case("ext_choice", choice, "letter and option", goal=2_000),
    Case("ext_yes_no", yes_no, "a sentence", goal=2_000),
    Case("ext_numeric", number, "number and unit", goal=2_000),
    Case("ext_ocr", text(20), "20 words", goal=2_000),
    Case("ext_ocr", text(400), "400 words", goal=2_000),
    Case("ext_wer", text(20), "20 words", goal=2_000),
    Case("ext_anls", text(4), "4 words", goal=2_000),
    Case("ext_json_schema", fields, "9 fields, in a child"),
    Case("ext_text_f1", text(20), "20 words"),
    Case("ext_rouge", text(20), "20 words"),
    Case("ext_tool_call", call, "a call as JSON"),
    Case("ext_answer", number, "number and unit, in a child"),
    Case("ext_format", choice, "think and answer", goal=2_000),
    Case("ext_overlong", tokens, "200 tokens"),
    Case("ext_cosine", tokens, "200 tokens"),
    Case("ext_repetition", text(200), "200 words"),
    Case("ext_table", table, "5 x 4 cells, in a child"),
    Case("ext_math", formula, "a fraction, in a child"),
)
