"""Tiny checkpoints and datasets of the sweep, each built once."""

import json
from functools import partial

from PIL import Image

from swift_grpo_ext import testing
from swift_grpo_ext.testing.families import TINY
from tests.models.contract_cases import turning_video

MODELS = {
    "qwen2_5_vl_stock": lambda folder, **options: testing.tiny_qwen2_5_vl(
        folder, stock_vocabulary=True, **options
    ),
    "qwen2_5_vl two heads": partial(testing.tiny_qwen2_5_vl, num_key_value_heads=2),  # one for each rank
    **{family: partial(testing.tiny_checkpoint, family) for family in TINY},
}
QUESTIONS = (
    "Which digit is this?",
    "What is in the picture? Describe it in one short sentence.",
    "Locate the object and give its box as four numbers, please.",
    "Is the answer yes or no?",
)


def types(model):
    """Arguments that name model and template."""
    return dict(TINY[model].host) if model in TINY else {}


def usual_data(model):
    """Text for text models, one image a row for the others."""
    return "text" if model in TINY and not TINY[model].vision else "image"


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def text_rows(folder):
    """Twelve questions of several lengths, without an image."""
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"{QUESTIONS[number % 4]} {'number ' * (number % 5)}{number}"}
            ]
        }
        for number in range(12)
    ]
    return write(folder / "text.jsonl", rows)


def roles(folder):
    """The same questions: alone, after another turn, and with what a tool has answered behind them."""
    rows = [json.loads(line) for line in text_rows(folder).read_text().splitlines()]
    call = json.dumps({"name": "look", "arguments": {"where": "left"}})
    for number, row in enumerate(rows):
        asked = row["messages"]
        if number % 3 == 1:
            row["messages"] = [*asked, {"role": "assistant", "content": "Which?"}, *asked]
        elif number % 3 == 2:
            answered = {"role": "tool_response", "content": f"a {number}"}
            row["messages"] = [*asked, {"role": "tool_call", "content": call}, answered]
    return write(folder / "text.jsonl", rows)


def hints(folder):
    """The same questions, each with what a teacher is told beside it."""
    rows = [json.loads(line) for line in text_rows(folder).read_text().splitlines()]
    for number, row in enumerate(rows):
        row["teacher_prompt"] = f"{row['messages'][0]['content']} The answer is {number}."
    return write(folder / "text.jsonl", rows)


def pictures(folder, counts):
    """Twelve questions with as many images each as `counts` says in turn."""
    digits = testing.digits_dataset(folder / "digits", limit=48)
    paths = [json.loads(line)["images"][0] for line in digits.train.read_text().splitlines()]
    rows = []
    for number in range(12):
        images = paths[3 * number : 3 * number + counts[number % len(counts)]]
        content = f"{'<image>' * len(images)}{QUESTIONS[number % 4]} {number}"
        rows.append({"messages": [{"role": "user", "content": content}], "images": images})
    return write(folder / "pictures.jsonl", rows)


def sized(folder, without=()):
    """Twelve questions with one image each, of four sizes; those rows without have none."""
    rows = [json.loads(line) for line in pictures(folder, (1,)).read_text().splitlines()]
    for number, row in enumerate(rows):
        if number in without:
            row["images"] = []
            row["messages"][0]["content"] = row["messages"][0]["content"].removeprefix("<image>")
        elif not without:
            path = folder / f"sized{number}.png"
            size = ((56, 56), (84, 56), (56, 112), (112, 84))[number % 4]
            Image.open(row["images"][0]).resize(size).save(path)
            row["images"] = [str(path)]
    return write(folder / "pictures.jsonl", rows)


MEDIA = ((0, 0), (1, 0), (3, 0), (0, 1), (1, 1), (0, 0), (3, 0), (0, 1))  # images and videos of a row


def media(folder):
    """Eight questions with no image to three, with and without a video."""
    rows = [json.loads(line) for line in pictures(folder, [images for images, _ in MEDIA]).open()]
    video = str(turning_video(folder / "turning.mp4", frames=16))
    for row, (_, videos) in zip(rows, MEDIA, strict=False):
        row["videos"] = [video] * videos
        row["messages"][0]["content"] = "<video>" * videos + row["messages"][0]["content"]
    return write(folder / "pictures.jsonl", rows[: len(MEDIA)])


DATA = {
    "text": text_rows,
    "hints": hints,
    "roles": roles,
    "image": lambda folder: pictures(folder, (1,)),
    "images 0-3": lambda folder: pictures(folder, (1, 0, 3, 2)),
    "sizes": sized,
    "one row without": lambda folder: sized(folder, without=(1, 6)),
    "media": media,
    "two images": lambda folder: pictures(folder, (2,)),
}
