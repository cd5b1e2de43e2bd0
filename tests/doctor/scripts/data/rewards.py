"""Rewards of a user: one that is right, and one for every way to be wrong."""

import time

from swift.rewards import ORM, orms


class Exact(ORM):
    def __call__(self, completions, solution, **kwargs):
        return [
            float(f"<answer>{gold}</answer>" in text)
            for text, gold in zip(completions, solution, strict=True)
        ]


class Raises(ORM):
    def __call__(self, completions, solution, **kwargs):
        return [
            float(text.split("<answer>")[1].split("</answer>")[0] == gold)
            for text, gold in zip(completions, solution, strict=True)
        ]


class Hangs(ORM):
    def __call__(self, completions, **kwargs):
        time.sleep(3600)


class Constant(ORM):
    def __call__(self, completions, **kwargs):
        return [1.0] * len(completions)


class Inverted(ORM):
    def __call__(self, completions, solution, **kwargs):
        return [float(gold not in text) for text, gold in zip(completions, solution, strict=True)]


class NeedsBox(ORM):
    def __call__(self, completions, bbox, **kwargs):
        return [float(str(box) in text) for text, box in zip(completions, bbox, strict=True)]


class NeedsAnswer(ORM):
    def __call__(self, completions, answer, **kwargs):
        return [float(gold in text) for text, gold in zip(completions, answer, strict=True)]


class Short(ORM):
    def __call__(self, completions, **kwargs):
        return [1.0]


class Infinite(ORM):
    def __call__(self, completions, **kwargs):
        return [float(len(text)) if text else float("-inf") for text in completions]


for reward in (Exact, Raises, Hangs, Constant, Inverted, NeedsBox, NeedsAnswer, Short, Infinite):
    orms[reward.__name__.lower()] = reward
