"""A reward of a user."""

from swift.rewards import ORM, orms


class Exact(ORM):
    def __call__(self, completions, solution, **kwargs):
        return [
            float(f"<answer>{gold}</answer>" in text)
            for text, gold in zip(completions, solution, strict=True)
        ]


orms["exact"] = Exact
