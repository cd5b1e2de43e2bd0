"""Completions that no model wrote, the same for each engine: they depend on the prompt and the number in the group."""

import json
import random
import zlib
from pathlib import Path

LENGTHS = [4, 14]  # shortest and longest completion, in tokens


def token_ids(sample, number, vocabulary):
    """Ordinary tokens."""
    name = image_name(sample.images) or str(sample.messages)
    draw = random.Random(zlib.crc32(f"{name}:{number}".encode()))
    return [draw.choice(vocabulary) for _ in range(draw.randint(*LENGTHS))]


def rollouts(samples, tokenizer, generations, first=0):
    """What a rollout engine would return for samples of which the first has this number in the generation batch."""
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    vocabulary = [token for token in range(len(tokenizer)) if token not in special]
    made = []
    for place, sample in enumerate(samples, first):
        ids = token_ids(sample, place % generations, vocabulary)
        made.append(rollout(ids, tokenizer.decode(ids), "length"))
    return made


def rollout(ids, text, finish_reason):
    """A completion as a rollout engine returns it."""
    from swift.infer_engine.protocol import (
        ChatCompletionResponse,
        ChatCompletionResponseChoice,
        ChatMessage,
        RolloutOutput,
        UsageInfo,
    )

    message = ChatMessage(role="assistant", content=text)
    choice = ChatCompletionResponseChoice(
        index=0, message=message, finish_reason=finish_reason, token_ids=ids
    )
    response = ChatCompletionResponse(model="made-up", choices=[choice], usage=UsageInfo(0, 0, 0))
    return RolloutOutput(response=response)


def image_name(images):
    """Of the first image, empty without one: what tells rows of a dataset apart."""
    image = images[0] if images else ""
    return Path(str(image.get("path") if isinstance(image, dict) else image)).name


def register_reward():
    """``--reward_funcs made_up``: a number in [0, 1) that depends on the text only; ``made_up_or_none``: for most texts, ``made_up_none``: for none."""
    from swift.rewards import orms
    from swift.rewards.orm import ORM

    class MadeUp(ORM):
        def __call__(self, completions, **kwargs):
            return [zlib.crc32(text.encode()) % 1000 / 1000 for text in completions]

    class MadeUpOrNone(MadeUp):
        def __call__(self, completions, **kwargs):
            scores = super().__call__(completions)
            return [None if 0.3 < score < 0.6 else score for score in scores]

    class MadeUpNone(ORM):
        def __call__(self, completions, **kwargs):
            return [None for _ in completions]

    orms["made_up"] = MadeUp
    orms["made_up_none"] = MadeUpNone
    orms["made_up_or_none"] = MadeUpOrNone


def use_small_vocabulary(model):
    """Let ms-swift's own templates use the placeholder ids of a tiny checkpoint."""
    from swift.template.templates import qwen

    config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    names = [name for name in ("image_token_id", "video_token_id") if name in config]
    for template in vars(qwen).values():
        for name in names:
            if isinstance(template, type) and name in vars(template):
                setattr(template, name, config[name])
