"""In the place of a server whose scheduler returns a row for each turn, or rows that branch: made-up answers.

A plugin file for the reward; a test puts `rollout` into the trainer's class. ``ROWS_OF=turns`` gives three
rows for each request (dynamic rows), ``ROWS_OF=branches`` one row for each, whose turns are those of a tree
search. Real servers run in tests/engines.
"""

import os
import random

from accelerate.utils import gather_object
from swift.infer_engine.protocol import (
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    RolloutOutput,
    UsageInfo,
)
from swift.rewards import ORM, orms
from swift.rlhf_trainers.utils import get_even_process_data

TURNS = 3
CROP = "<image>And this crop?"


class FirstAnswer(ORM):
    """One score for all rows of a trajectory, which have its first answer in common."""

    def __call__(self, completions, messages, **kwargs):
        first = [next(one["content"] for one in row if one["role"] == "assistant") for row in messages]
        return [sum(ord(char) % 2 for char in text) / max(len(text), 1) for text in first]


orms["first_answer"] = FirstAnswer


def answer(template, *path):
    """Text and tokens of one turn, the same for the same path of turns."""
    draw = random.Random(repr(path))
    text = " ".join(draw.choice(("one", "two", "three", "seven", "digit")) for _ in range(50))
    return text, [
        *template.tokenizer(text, add_special_tokens=False)["input_ids"],
        template.tokenizer.eos_token_id,
    ]


def trajectory(trainer, request, path):
    """Messages, tokens and images of all turns of a path."""
    messages, images, ids = list(request.messages), list(request.images), []
    for turn in range(1, TURNS + 1):
        text, tokens = answer(trainer.template, request.messages[-1]["content"], *path[:turn])
        messages.append({"role": "assistant", "content": text})
        ids.append(tokens)
        if turn < TURNS:
            messages.append({"role": "user", "content": CROP if images else "And now?"})
            images += images[:1]
    return messages, ids, images


def output(request, messages, ids, images):
    choice = ChatCompletionResponseChoice(
        0, ChatMessage("assistant", messages[-1]["content"]), "stop", None, ids[-1]
    )
    response = ChatCompletionResponse("model", [choice], UsageInfo(0, 0, 0), id=request.uuid)
    infos = {"num_turns": len(ids)} | ({"images": images} if images else {})
    return RolloutOutput(response=response, messages=messages, response_token_ids=ids, rollout_infos=infos)


def rows_of(trainer, request, number):
    if os.environ["ROWS_OF"] == "branches":  # of eight: one first turn, two second ones, four third ones
        path = (0, number % 8 // 4, number % 8 // 2)
        return [output(request, *trajectory(trainer, request, path))]
    messages, ids, images = trajectory(trainer, request, (number,) * TURNS)
    outer = len(messages) - 2 * TURNS + 1
    own = len(images) - (TURNS - 1) if images else 0
    return [
        output(request, messages[: outer + 2 * turn - 1], ids[:turn], images[: own + turn - 1])
        for turn in range(1, TURNS + 1)
    ]


def rollout(trainer, samples, request_config, is_global_inputs=False):
    requests = trainer.samples2requests(samples)
    everyone = gather_object(requests)
    if hasattr(trainer, "rollout"):
        trainer.rollout.expect(everyone)
    outputs = [row for number, request in enumerate(everyone) for row in rows_of(trainer, request, number)]
    trainer.dynamic_num_samples = len(outputs) != len(everyone)
    if trainer.dynamic_num_samples:
        random.Random(0).shuffle(outputs)
        outputs.sort(key=lambda row: len(row.messages))  # as turns end
        return get_even_process_data(trainer, trainer._sort_by_request_id(outputs))
    first = len(requests) * trainer.accelerator.process_index
    return outputs[first : first + len(requests)]
