"""A plugin whose attention over packs raises on rank 1 alone."""

import os

from swift_grpo_ext.group.attention import BACKENDS

sdpa = BACKENDS["sdpa"]


def raising_on_rank_1(*args):
    if os.environ.get("RANK") == "1":
        raise RuntimeError("rank 1 alone")
    return sdpa(*args)


BACKENDS["sdpa"] = raising_on_rank_1
