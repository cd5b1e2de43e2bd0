"""Completions and rewards of selftest: they depend on prompt and place in the group alone."""

import hashlib
import json
import math
import random
from pathlib import Path
from typing import Any

from swift.infer_engine.protocol import (
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    RolloutOutput,
    UsageInfo,
)
from swift.rewards import ORM
from swift.template import Template

WORDS = "the digit looks round so answer is zero one two three four five six seven eight nine"


class SelftestReward(ORM):
    """A number in 0 ... 1 that depends on the completion's text alone."""

    def __call__(self, completions: list[str], **kwargs: object) -> list[float | None]:
        """Score each completion by a hash of its text."""
        return list(map(_of_text, completions))


class SomeScores(ORM):
    """The same for some completions, None for the others, an infinity for a few."""

    def __call__(self, completions: list[str], **kwargs: object) -> list[float | None]:
        """Score each completion, or not, by a hash of its text."""
        marks = [_of_text(text[::-1]) for text in completions]
        return [
            None if mark < 0.35 else math.inf if mark < 0.43 else _of_text(text)
            for mark, text in zip(marks, completions, strict=True)
        ]


def _of_text(text: str) -> float:
    return hashlib.sha256(text.encode()).digest()[0] / 255


def scripted(request: Any, place: int, template: Template, limit: int) -> RolloutOutput:
    """What an engine answers to a request, or a sample, at a place in its group, in ``limit`` tokens."""
    images = [Path(str(image)).name for image in request.images]
    texts = [[message["role"], str(message["content"])] for message in request.messages]
    generator = random.Random(json.dumps([texts, images, place]))
    words = generator.choices(WORDS.split(), k=generator.randint(1, 3))
    tokenizer = template.tokenizer
    tokens = tokenizer.encode(" ".join(words))[:limit]
    message = ChatMessage("assistant", tokenizer.decode(tokens))
    choice = ChatCompletionResponseChoice(0, message, "stop", token_ids=tokens)
    usage = UsageInfo(0, len(tokens), len(tokens))
    return RolloutOutput(response=ChatCompletionResponse("scripted", [choice], usage))
