"""How far the policy has moved, without a reference model: a few first completions, scored again later.

With beta 0 the host keeps no reference and logs no KL. Completions that the first policy wrote are a sample
of it, so the log-probs that they had then against those that they have now estimate
KL(first policy || policy of now), for LoRA and for full training alike, at the price of one small forward
every few steps.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
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

    def look(self, samples: Sequence[object], step: int) -> tuple[Tensor, Tensor] | None:
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

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps, as JSON data; None before there is anything to keep."""
        if self._before is None:
            return None
        rows = [_as_row(sample) for sample in self._samples]
        return {"rows": rows, "logps": self._before.tolist(), "last": self._last}

    def load_state(self, state: Mapping[str, Any], as_sample: Callable[[Any], Any], device: Any) -> None:
        """Go on with the completions and log-probs of the run's first start.

        Args:
            state: From `state`.
            as_sample: Makes a sample of the host from a row.
            device: Where log-probs lie.
        """
        self._samples = [as_sample(_decoded(row)) for row in state["rows"]]
        self._before = torch.tensor(state["logps"], device=device)
        self._last = int(state["last"])


def _as_row(sample: Any) -> dict[str, object]:
    """A sample as a row of plain data, without what is made anew when it is scored."""
    made_anew = ("extra", "encoded", "advantages", "rewards", "routed_experts")
    row = {field.name: getattr(sample, field.name) for field in fields(sample) if field.name not in made_anew}
    return {name: _encoded(value) for name, value in row.items()}


def _encoded(value: object) -> object:
    """Plain data for JSON: bytes (of images in memory) as base64, what else is not plain left out."""
    if isinstance(value, bytes):
        return {"__base64__": base64.b64encode(value).decode("ascii")}
    if isinstance(value, Mapping):
        return {str(name): _encoded(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encoded(item) for item in value]
    return value if isinstance(value, (str, int, float, bool)) else None


def _decoded(value: object) -> Any:
    if isinstance(value, dict):
        if "__base64__" in value:
            return base64.b64decode(value["__base64__"])
        return {name: _decoded(item) for name, item in value.items()}
    return [_decoded(item) for item in value] if isinstance(value, list) else value
