"""The first pass of a kind: held against ms-swift's own way, and given up where it raises, on all ranks."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace, TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from swift_grpo_ext.group.micro_batch import MicroBatch
from swift_grpo_ext.group.self_check import limits, mismatch, without_dropout
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.failure import all_ranks_are_here
from swift_grpo_ext.trainer.host import Host

_ROWS = 8
Result = TypeVar("Result")


class Attempt:
    """Something that may raise on some ranks, after which all of them give it up.

    Args:
        host: The trainer.
        gathers: Ranks wait for each other inside the model (ZeRO-3, FSDP): one that raises alone leaves the
            others waiting, so its error ends the run; where all raise, they give up together.

    Attributes:
        problem: Why it cannot be used, in a clause; empty if it can.
    """

    def __init__(self, host: Host, gathers: bool) -> None:
        self._host, self._gathers = host, gathers
        self.problem = ""

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if self._gathers and not all_ranks_are_here("first pass"):
            return False
        lines = str(error).strip().splitlines() or [""]
        self.problem = f"{type(error).__name__}: {lines[0]}"
        return True

    def failed(self) -> bool:
        """Whether it failed on any rank. A collective, so every rank must come here."""
        return bool(agreed_max(int(bool(self.problem)), self._host.accelerator.device))


def tried(
    host: Host, gathers: bool, check: Callable[[], str], forward: Callable[[], Result]
) -> tuple[Result | None, str]:
    """The first pass of a kind, or why it cannot be used: on every rank alike.

    Args:
        host: The trainer.
        gathers: As in `Attempt`.
        check: Says what is wrong with log-probs without gradients.
        forward: The pass.
    """
    with (first := Attempt(host, gathers)):
        first.problem = check()
    if first.failed():
        return None, first.problem
    found = None
    with (second := Attempt(host, gathers)):
        found = forward()
    return (None, second.problem) if second.failed() else (found, "")


def compare(
    model: nn.Module,
    batch: MicroBatch,
    ours: Callable[[], Tensor],
    stock: Callable[..., Any],
    dtype: torch.dtype,
) -> str:
    """Why our log-probs of the first rows of a micro-batch cannot be used; empty if they can.

    Args:
        model: The model as the trainer calls it for passes without gradients.
        batch: The micro-batch.
        ours: Gives ``(batch, keep, 2)`` log-probs and entropies.
        stock: ms-swift's ``_get_per_token_logps_and_entropies_single``.
        dtype: In which the model computes.
    """
    keep = batch.completion_mask.shape[1]
    rows = range(min(len(batch.completion_mask), _ROWS))
    with torch.no_grad(), without_dropout(model):
        found = ours()[: len(rows), :, 0]
        region = SimpleNamespace(logits_to_keep=keep)

        def of_rows(each: int) -> Tensor:
            parts = (rows[start : start + each] for start in rows[::each])
            return torch.cat([stock(model, batch.row_inputs(part), region)[0] for part in parts])

        if batch.media is None:  # no row can be taken out with its pixels
            theirs = paired = stock(model, dict(batch.inputs), region)[0][: len(rows)]
        else:
            theirs, paired = of_rows(1), of_rows(2)
    mask = batch.completion_mask[: len(rows)]
    return mismatch(found, theirs, mask, limits(theirs, paired, mask, dtype))
