"""Do the predictions look as if they were written in another coordinate frame?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean

from swift_grpo_ext.rewards.contract import Reward, Score
from swift_grpo_ext.rewards.frames import FRAMES
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.ledger import say

LOW = 0.35  # share of a reward's range below which the mean score of a batch is looked at
GAIN = 0.25  # share of the range by which another frame must be better
SAMPLES = 16


def diagnose(reward: Reward, parameters: Mapping[str, object], batch: Batch, scores: Sequence[Score]) -> None:
    """Say if another frame fits a low batch much better. It changes no score: frames are declared."""
    known = [score for score in scores if score is not None]
    extent = reward.high - reward.low
    if not known or (fmean(known) - reward.low) / extent >= LOW:
        return
    declared = parameters.get("frame") or reward.parameters["frame"]
    declared_gold = parameters.get("gold_frame") or declared
    means: dict[tuple[object, object], float] = {}
    for frame, gold_frame in product(FRAMES, FRAMES):
        found = [
            reward.outcome(completion, batch.row(index), parameters, frame=frame, gold_frame=gold_frame).score
            for index, completion in enumerate(batch.completions[:SAMPLES])
        ]
        known = [score for score in found if score is not None]
        if known and len(known) == len(found):
            means[frame, gold_frame] = fmean(known)
    if (here := means.get((declared, declared_gold))) is None:
        return
    # Among equal readings, the one that differs least from what is declared.
    best = max(means, key=lambda pair: (means[pair], pair[0] == declared, pair[1] == declared_gold))
    if means[best] >= here + GAIN * extent:
        say(
            f"reward {reward.name!r}: the answers look like {best[0]} and the gold like {best[1]} (mean "
            f"score {means[best]:.2f}), but frame is {declared} and gold_frame {declared_gold} "
            f"({here:.2f}); set them in SWIFT_GRPO_EXT_REWARD_TABLE"
        )
