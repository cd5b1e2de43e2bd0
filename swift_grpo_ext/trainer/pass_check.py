"""The first pass of a kind: held against ms-swift's own way, and given up where it raises, on all ranks."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace, TracebackType
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from swift_grpo_ext.group.flat_rows import is_flat
from swift_grpo_ext.group.micro_batch import MicroBatch
from swift_grpo_ext.group.self_check import limits, mismatch, without_dropout
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.failure import all_ranks_are_here
from swift_grpo_ext.trainer.host import Host

_ROWS = 8
Result = TypeVar("Result")


class Attempt:
    """Something that may raise on some ranks, after which all of them give it up.

    Where ranks wait for each other inside the model (ZeRO-3, FSDP), one that raises alone leaves the others
    waiting, so its error ends the run; where all raise, they give up together.
    """

    def __init__(self, host: Host, gathers: bool) -> None:
        self._host, self._gathers = host, gathers
        self.problem = ""  # why it cannot be used, in a clause; empty if it can
        self.no_room: Exception | None = None  # it ran out of memory

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if self._gathers and not all_ranks_are_here("first pass"):
            return False
        if isinstance(error, torch.OutOfMemoryError):
            self.no_room = error.with_traceback(None)  # whose frames hold the graph
        else:
            lines = str(error).strip().splitlines() or [""]
            self.problem = f"{type(error).__name__}: {lines[0]}"
        return True

    def outcome(self) -> int:
        """The worst of all ranks. A collective, so every rank must come here."""
        mine = FAILED if self.problem else NO_ROOM if self.no_room else 0
        return agreed_max(mine, self._host.accelerator.device)


NO_ROOM, FAILED = 1, 2


def tried(
    host: Host,
    gathers: bool,
    check: Callable[[], str],
    forward: Callable[[], Result],
    halve: Callable[[Exception | None], None],
) -> tuple[Result | None, str]:
    """The first pass of a kind, or why it cannot be used: on every rank alike.

    ``halve`` makes check and pass take less memory, where they have run out of it.
    """
    found: list[Result] = []

    def checked(attempt: Attempt) -> None:
        attempt.problem = check()

    for run in (checked, lambda _: found.append(forward())):
        while True:
            with (attempt := Attempt(host, gathers)):
                run(attempt)
            outcome = attempt.outcome()
            if outcome == FAILED:
                return None, attempt.problem
            if not outcome:
                break
            halve(attempt.no_room)
            found.clear()
    return found[0], ""


def compare(
    model: nn.Module,
    batch: MicroBatch,
    ours: Callable[[], Tensor],
    stock: Callable[..., tuple[Tensor, object]],
    dtype: torch.dtype,
) -> str:
    """Why our log-probs of the first rows of a micro-batch cannot be used; empty if they can.

    ``ours`` gives ``(batch, keep, 2)``; ``stock`` is ms-swift's
    ``_get_per_token_logps_and_entropies_single``.
    """
    keep = batch.completion_mask.shape[1]
    rows = range(min(len(batch.completion_mask), _ROWS))
    mask = batch.completion_mask[: len(rows)]

    def at_once() -> Tensor:
        lengths = batch.inputs["attention_mask"][:, -keep:].sum(1)
        region = SimpleNamespace(logits_to_keep=keep, seq_lengths=lengths)
        return stock(model, dict(batch.given), region)[0][: len(rows)]

    def of_rows(each: int) -> Tensor:
        parts = (rows[start : start + each] for start in rows[::each])
        return torch.cat([_stock_rows(model, batch, stock, part) for part in parts])

    with torch.no_grad(), without_dropout(model):
        found = ours()[: len(rows), :, 0]
        if batch.media is None:  # no row can be taken out with its pixels
            theirs = paired = at_once()
        else:
            theirs = of_rows(1)
            exact = dtype not in (torch.float16, torch.bfloat16)
            paired = theirs if exact else at_once() if is_flat(batch.given) else of_rows(2)
    return mismatch(found, theirs, mask, limits(theirs, paired, mask, dtype))


def _stock_rows(
    model: nn.Module, batch: MicroBatch, stock: Callable[..., tuple[Tensor, object]], rows: range
) -> Tensor:
    """Stock log-probs of some rows; without padding ms-swift is told how much of a row's end to take."""
    keep, inputs = batch.completion_mask.shape[1], batch.row_inputs(rows)
    width = min(keep, inputs["input_ids"].shape[1] - 1)
    region = SimpleNamespace(logits_to_keep=width, seq_lengths=torch.tensor([width]))
    return pad(stock(model, inputs, region)[0], (keep - width, 0))


def compare_passes(
    model: nn.Module,
    ours: Callable[[], tuple[Tensor, object]],
    stock: Callable[[], tuple[Tensor, object]],
    mask: Tensor,
    dtype: torch.dtype,
) -> str:
    """The same for a pass that is ms-swift's own but for the features of its images."""
    with torch.no_grad(), without_dropout(model):
        theirs = stock()[0]
        return mismatch(ours()[0], theirs, mask, limits(theirs, theirs, mask, dtype))
