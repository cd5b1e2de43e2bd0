"""A plugin: on rank 1 alone the parts that STRUCK names, or all of them, raise; rank 0 alone sees rewards FALL."""

import os

from swift_grpo_ext.watch.guard import Guard
from swift_grpo_ext.watch.held_out import HeldOutHistory

RANK = os.environ.get("RANK")
run = Guard.run


def struck(guard, part, action):
    def raising():
        raise ValueError("injected on rank 1")

    hit = RANK == "1" and os.environ.get("STRUCK") in (part, "all")
    return run(guard, part, raising if hit else action)


Guard.run = struck
if "FALL" in os.environ:
    HeldOutHistory.why_stop = lambda self, patience: "fallen" * (RANK == "0")
