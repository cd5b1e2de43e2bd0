"""Rewards that are at fault on the last rank: one hangs at its second completion, once; one raises."""

import os
import time
from pathlib import Path

from swift.rewards import ORM, orms


def on_the_last_rank():
    return os.environ.get("RANK", "0") == str(int(os.environ.get("WORLD_SIZE", "1")) - 1)


class Hanging(ORM):
    def __init__(self, args=None, **kwargs):
        super().__init__(args, **kwargs)
        self.last_rank = on_the_last_rank()
        self.seen = 0

    def __call__(self, completions, **columns):
        scores = []
        for completion in completions:
            self.seen += 1
            mark = Path(self.args.output_dir) / "hung"
            if self.last_rank and self.seen == 2 and not mark.exists():
                mark.write_text(str(time.time()))
                time.sleep(3600)
            scores.append(sum(ord(character) % 2 for character in completion) / max(1, len(completion)))
        return scores


class Raising(ORM):
    def __init__(self, args=None, **kwargs):
        super().__init__(args, **kwargs)
        self.last_rank = on_the_last_rank()

    def __call__(self, completions, **columns):
        if self.last_rank:
            (Path(self.args.output_dir) / "hung").write_text(str(time.time()))
            raise ValueError("a fault of this rank alone")
        return [1.0] * len(completions)


orms["hanging"] = Hanging
orms["raising"] = Raising


class Always(ORM):
    """Raises on every batch, on every rank."""

    def __call__(self, completions, **columns):
        raise ValueError("always")


orms["always_raising"] = Always


class OfOneStep(ORM):
    """Scores the first batch alone, or all but the first."""

    scores_first = True

    def __init__(self, args=None, **kwargs):
        super().__init__(args, **kwargs)
        self.asked = 0

    def __call__(self, completions, **columns):
        self.asked += 1
        return [1.0 if (self.asked == 1) == self.scores_first else None] * len(completions)


orms["scores_first"] = OfOneStep
orms["scores_later"] = type("OfTheRest", (OfOneStep,), {"scores_first": False})
