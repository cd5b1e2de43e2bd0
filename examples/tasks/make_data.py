"""Draws the sample data of the task examples: PNG files, and rows as the ``ext_*`` rewards read them.

``python -m examples.tasks.make_data`` writes ``examples/tasks/data`` anew. Everything is drawn here, so
nothing in the data has another origin or licence than this package. Boxes are pixels of the image file.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

HERE = Path(__file__).parent
ROWS_PER_TASK = 8
MIXED_ROWS = {"": 32, "_held_out": 16}  # by the part of a file's name: to train, and to evaluate on
COLOURS = ("red", "green", "blue", "orange", "purple")
SHAPES = ("circle", "square", "triangle")
BUTTONS = ("Open", "Save", "Print", "Undo", "Find", "Help")
GOODS = ("bread", "milk", "tea", "rice", "apples", "soap", "paper", "salt")

Box = tuple[int, int, int, int]
Drawn = tuple[Image.Image, str, str]  # image, question, solution


def grounding(chance: random.Random) -> Drawn:
    """Shapes in different colours; the answer is the box of one of them."""
    image, placed = _scene(chance, count=4)
    colour, shape, box = chance.choice(placed)
    question = (
        f"Where is the {colour} {shape}? "
        'Answer with its box as JSON: [{"bbox_2d": [x1, y1, x2, y2], "label": "name"}].'
    )
    return image, question, json.dumps([{"bbox_2d": box, "label": f"{colour} {shape}"}])


def counting(chance: random.Random) -> Drawn:
    """Shapes; the answer is how many of one shape there are, which may be none."""
    image, placed = _scene(chance, count=chance.randint(2, 6))
    wanted = chance.choice(SHAPES)
    number = sum(shape == wanted for _, shape, _ in placed)
    return image, f"How many {wanted}s are there? Answer with a number.", str(number)


def gui(chance: random.Random) -> Drawn:
    """A window with buttons and a text field; the answer is the next action."""
    image = Image.new("RGB", (300, 180), "gainsboro")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, 299, 22), fill="steelblue")
    draw.text((8, 4), "Notes", fill="white", font=_font(14))
    places: dict[str, Box] = {}
    for position, name in enumerate(chance.sample(BUTTONS, len(BUTTONS))):
        left, top = 14 + position % 3 * 94, 78 + position // 3 * 48
        places[name] = (left, top, left + 80, top + 32)
        draw.rounded_rectangle(places[name], radius=6, fill="white", outline="gray")
        draw.text((left + 40, top + 16), name, fill="black", font=_font(14), anchor="mm")
    draw.rectangle((14, 36, 282, 62), fill="white", outline="gray")
    name, word = chance.choice(BUTTONS), chance.choice(GOODS)
    gold: dict[str, Any] = {"action": "click", "bbox": places[name]}
    task = f"Press {name}."
    if chance.random() < 0.25:
        gold, task = {"action": "type", "text": word}, f"The text field has the focus. Enter the word {word}."
    question = (
        f"{task} Answer with one action as JSON: "
        '{"action": "click", "coordinate": [x, y]} or {"action": "type", "text": "..."}.'
    )
    return image, question, json.dumps(gold)


def ocr(chance: random.Random) -> Drawn:
    """A short receipt; the answer is its text, line by line."""
    lines = [f"{name} {chance.randint(1, 19)}.{chance.randint(0, 99):02}" for name in chance.sample(GOODS, 3)]
    image = Image.new("RGB", (196, 112), "ivory")
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        draw.text((14, 14 + 30 * number), line, fill="black", font=_font(20))
    return image, "Read the receipt, line by line.", "\n".join(lines)


TASKS: dict[str, Callable[[random.Random], Drawn]] = {
    "grounding": grounding,
    "gui": gui,
    "ocr": ocr,
    "counting": counting,
}


def _scene(chance: random.Random, count: int) -> tuple[Image.Image, list[tuple[str, str, Box]]]:
    """Shapes in the cells of a grid, no two of the same colour and shape."""
    image = Image.new("RGB", (252, 168), "white")
    draw = ImageDraw.Draw(image)
    kinds = chance.sample([(colour, shape) for colour in COLOURS for shape in SHAPES], count)
    cells = chance.sample([(x, y) for x in range(3) for y in range(2)], count)
    placed = []
    for (colour, shape), (x, y) in zip(kinds, cells, strict=True):
        side = chance.randint(30, 64)
        left, top = x * 84 + chance.randint(4, 78 - side), y * 84 + chance.randint(4, 78 - side)
        box = (left, top, left + side, top + side)
        _shape(draw, shape, colour, box)
        placed.append((colour, shape, box))
    return image, placed


def _shape(draw: ImageDraw.ImageDraw, shape: str, colour: str, box: Box) -> None:
    left, top, right, bottom = box
    if shape == "circle":
        draw.ellipse(box, fill=colour)
    elif shape == "square":
        draw.rectangle(box, fill=colour)
    else:
        draw.polygon([(left, bottom), (right, bottom), ((left + right) // 2, top)], fill=colour)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)  # the one that Pillow brings along


def _rows(task: str, part: str, folder: Path) -> Iterator[dict[str, Any]]:
    chance = random.Random(task + part)
    for number in range(ROWS_PER_TASK):
        image, question, solution = TASKS[task](chance)
        name = f"images/{task}{part}_{number}.png"
        image.save(folder / name, optimize=True)
        yield {
            "messages": [{"role": "user", "content": f"<image>{question}"}],
            "images": [name],
            "solution": solution,
            "task": task,
        }


def make(folder: Path) -> None:
    """Write two JSONL for each task, to train and to evaluate on, and two with all tasks shuffled."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for part, rows_of_mixture in MIXED_ROWS.items():
        rows = {task: list(_rows(task, part, folder)) for task in TASKS}
        mixed = [row for task in TASKS for row in rows[task]]
        random.Random("mixed").shuffle(mixed)
        for name, its_rows in {**rows, "mixed": mixed[:rows_of_mixture]}.items():
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in its_rows]
            (folder / f"{name}{part}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    make(HERE / "data")
