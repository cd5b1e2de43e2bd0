"""A plugin with rewards that have the faults of the field, and one that has none."""

import math

from swift.rewards import ORM, orms


def good(text):
    return sum(ord(char) % 2 for char in text) / max(len(text), 1)


class Good(ORM):
    def __call__(self, completions, **kwargs):
        return [good(text) for text in completions]


class Constant(ORM):
    def __call__(self, completions, **kwargs):
        return [0.0 for _ in completions]


class Missing(ORM):
    def __call__(self, completions, **kwargs):
        return [None for _ in completions]


class OneMissing(ORM):
    def __call__(self, completions, **kwargs):
        return [None if row % 4 == 3 else good(text) for row, text in enumerate(completions)]


class OneInfinite(ORM):
    def __call__(self, completions, **kwargs):
        return [math.inf if row == 0 else good(text) for row, text in enumerate(completions)]


class OfTheBatch(ORM):
    def __call__(self, completions, **kwargs):
        return [0.5]


class Raises(ORM):
    def __call__(self, completions, **kwargs):
        raise KeyError("boxes")


for kind in (Good, Constant, Missing, OneMissing, OneInfinite, OfTheBatch, Raises):
    orms[f"test_{kind.__name__}"] = kind
