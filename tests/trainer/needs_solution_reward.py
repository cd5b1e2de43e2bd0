"""A plugin whose reward needs a column that validation rows may lack."""

from swift.rewards import ORM, orms


class NeedsSolution(ORM):
    def __call__(self, completions, **columns):
        golds = columns["solution"]
        return [float(len(text) % 2) for text, _ in zip(completions, golds, strict=True)]


orms["needs_solution"] = NeedsSolution
