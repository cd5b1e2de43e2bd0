"""A plugin: a reward that is of another task for the first half of each batch, and scores nothing there."""

from swift.rewards import orms
from swift.rewards.orm import ORM


class ScoresHalf(ORM):
    """None for the first half of the completions; of the others whether their length is even."""

    def __call__(self, completions, **kwargs):
        half = len(completions) // 2
        return [None] * half + [float(len(text) % 2 == 0) for text in completions[half:]]


orms["scores_half"] = ScoresHalf
