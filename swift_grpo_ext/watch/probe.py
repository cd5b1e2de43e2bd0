"""How far the policy has moved, without a reference model: a few first completions, scored again later.

With beta 0 the host keeps no reference and logs no KL. Completions that the first policy wrote are a sample
of it, so the log-probs that they had then against those that they have now estimate
KL(first policy || policy of now), for LoRA and for full training alike, at the price of one small forward
every few steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from swift_grpo_ext.group.statistics import per_token_kl

ROWS = 2


class Probe:
    """This rank's first completions and the log-probs that they had.

    Args:
        score: Gives for samples their log-probs and the mask of their completion tokens, both
            ``(batch, seq)``. All ranks call it together.
        every: Steps between two estimates.
    """

    def __init__(self, score: Callable[[Sequence[Any]], tuple[Tensor, Tensor]], every: int) -> None:
        self._score = score
        self._every = every
        self._samples: list[Any] = []
        self._before: Tensor | None = None
        self._last = 0

    def look(self, samples: Sequence[Any], step: int) -> tuple[Tensor, Tensor] | None:
        """Keep the first samples; when it is time, score them again.

        Args:
            samples: Of the newest rollout.
            step: Optimizer steps taken so far, the same on all ranks.

        Returns:
            When it is time, two scalars of this rank: the sum over tokens of the estimate in nats, and the
            number of tokens.
        """
        if self._before is None:
            self._samples = list(samples[:ROWS])
            self._before, _ = self._score(self._samples)
            self._last = step
        if step - self._last < self._every:
            return None
        self._last = step
        now, mask = self._score(self._samples)
        return (per_token_kl(self._before, now) * mask).sum(), mask.sum()
