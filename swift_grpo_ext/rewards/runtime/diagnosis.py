"""Do the predictions look as if they were written in another coordinate frame?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from swift_grpo_ext.rewards.contract import Reward, Score
from swift_grpo_ext.rewards.frames import FRAMES
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.log_once import say

LOW = 0.35
GAIN = 0.25
SAMPLES = 16


class FrameDiagnosis:
    """Says now and then if another frame fits much better. It changes no score: frames are declared."""

    def __init__(self, reward: Reward, parameters: Mapping[str, object]) -> None:
        self.reward = reward
        self.parameters = parameters
        self._batches = 0

    def look(self, batch: Batch, scores: list[Score]) -> None:
        """Look at the batches 1, 2, 4, 8, ... of a reward that has frames and scores low."""
        if "frame" not in self.reward.parameters:
            return
        self._batches += 1
        known = [score for score in scores if score is not None]
        due = self._batches & (self._batches - 1) == 0
        low, high = self.reward.low, self.reward.high
        scores_low = due and known and (sum(known) / len(known) - low) / (high - low) < LOW
        if scores_low and (message := diagnose(self.reward, self.parameters, batch)):
            say(message)


def diagnose(reward: Reward, parameters: Mapping[str, object], batch: Batch) -> str:
    """What frame the answers and the gold of a batch seem to be in, if not the declared ones; else ""."""
    declared = parameters.get("frame") or reward.parameters["frame"]
    declared_gold = parameters.get("gold_frame") or declared
    means: dict[tuple[object, object], float] = {}
    for frame, gold_frame in product(FRAMES, FRAMES):
        scores = [
            reward.outcome(completion, batch.row(index), parameters, frame=frame, gold_frame=gold_frame).score
            for index, completion in enumerate(batch.completions[:SAMPLES])
        ]
        known = [score for score in scores if score is not None]
        if known and len(known) == len(scores):
            means[frame, gold_frame] = sum(known) / len(known)
    if (here := means.get((declared, declared_gold))) is None:
        return ""
    # Among equal readings, the one that differs least from what is declared.
    best = max(means, key=lambda pair: (means[pair], pair[0] == declared, pair[1] == declared_gold))
    if means[best] < here + GAIN * (reward.high - reward.low):
        return ""
    return (
        f"reward {reward.name!r}: the answers look like {best[0]} and the gold like {best[1]} (mean score "
        f"{means[best]:.2f}), but frame is {declared} and gold_frame {declared_gold} ({here:.2f}); "
        f"set them in SWIFT_GRPO_EXT_REWARD_TABLE"
    )
