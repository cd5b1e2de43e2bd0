"""The first pass of a kind: compared with ms-swift's own, and given up where it raises, on all ranks."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.functional import pad

from swift_grpo_ext.errors import in_a_line
from swift_grpo_ext.group.forward import is_flat
from swift_grpo_ext.group.micro_batch import MicroBatch
from swift_grpo_ext.group.self_check import forward_dtype, limits, mismatch, without_dropout
from swift_grpo_ext.models.families import VisionFamily
from swift_grpo_ext.trainer.distributed import agreed_max, all_ranks_are_here
from swift_grpo_ext.trainer.features import frozen_modules
from swift_grpo_ext.trainer.host import Host, base_model
from swift_grpo_ext.trainer.one_pass import OnePass, Request
from swift_grpo_ext.trainer.out_of_memory import Halves
from swift_grpo_ext.trainer.samples import PerToken, Scores

_ROWS = 8
_ONE_BY_ONE = "the vision tower calls layers once for each image, so ranks would deadlock; --deepspeed zero2"
Result = TypeVar("Result")


class PassKind(NamedTuple):
    """What may differ between two passes that are otherwise computed alike."""

    of_reference: bool
    with_gradients: bool


class SelfCheck:
    """Compares the first pass of each kind with ms-swift's own; every rank comes to the same end."""

    def __init__(
        self, host: Host, family: VisionFamily | None, halves: Halves, keeps_step: bool, on: bool
    ) -> None:
        self._host = host
        self._family = family
        self._halves = halves  # make check and pass take less memory, where they have run out of it
        self._keeps_step = keeps_step  # parameters are gathered: every rank must make the same calls
        self._trusted: set[PassKind] = set()
        self._on = on

    def is_due(self, kind: PassKind) -> bool:
        """Whether no pass of this kind has been compared yet."""
        return self._on and kind not in self._trusted

    def first(self, kind: PassKind, request: Request, one_pass: OnePass) -> tuple[Scores | None, str]:
        """The scores of the first pass of a kind; or None, and why (only on ranks that have a reason)."""
        self._trusted.add(kind)
        return tried(
            self._host,
            self._keeps_step,
            lambda: self._problem(kind, request, one_pass),
            lambda: one_pass.run(request),
            self._halves.halve,
        )

    def _problem(self, kind: PassKind, request: Request, one_pass: OnePass) -> str:
        """Why our scores of a request cannot be used; empty if they can."""
        host = self._host
        batch = request.batch
        enabled = one_pass.enabled
        plain = host.ref_model if kind.of_reference else host.model  # no hooks of wrappers
        assert plain is not None
        base = base_model(host, request.model)
        if self._keeps_step and self._family and (enabled.shared_prefix or enabled.vision_once):
            tower = frozen_modules(base, self._family)
            if problem := encodes_one_by_one(plain, batch, tower, request.stock_rows):
                return problem

        dtype = forward_dtype(base.dtype, host.accelerator.mixed_precision)
        if one_pass.is_stock_forward:
            return compare_passes(
                plain, lambda: one_pass.run(request), request.stock_in_step, batch.completion_mask, dtype
            )
        return compare(
            plain,
            batch,
            lambda: one_pass.scores(plain, batch, False, request.vision, request.record.packs or 1),
            request.stock_rows,
            dtype,
        )


def tried(
    host: Host,
    gathers: bool,
    check: Callable[[], str],
    forward: Callable[[], Result],
    halve: Callable[[Exception | None], None],
) -> tuple[Result | None, str]:
    """The first pass of a kind, or why it cannot be used: on every rank alike.

    Where ranks wait for each other inside the model (``gathers``: ZeRO-3, FSDP), one that raises alone leaves
    the others waiting, so its error ends the run; where all raise, they give up together. ``halve`` makes
    check and pass take less memory, where they have run out of it.
    """
    results: list[Result] = []
    problem = ""
    no_room = None

    def checked() -> None:
        nonlocal problem
        problem = check()

    for run in (checked, lambda: results.append(forward())):
        while True:
            no_room = None
            try:
                run()
            except Exception as error:
                if gathers and not all_ranks_are_here("first pass"):
                    raise
                if isinstance(error, torch.OutOfMemoryError):
                    no_room = error.with_traceback(None)  # whose frames hold the graph
                else:
                    problem = in_a_line(error)
            worst = agreed_max(2 if problem else int(no_room is not None), host.accelerator.device)
            if worst == 2:
                return None, problem
            if not worst:
                break
            halve(no_room)
            results.clear()
    return results[0], ""


def compare(
    model: nn.Module,
    batch: MicroBatch,
    ours: Callable[[], Float[Tensor, "batch keep 2"]],
    stock: Callable[..., Scores],
    dtype: torch.dtype,
) -> str:
    """Why our log-probs of the first rows of a micro-batch cannot be used; empty if they can.

    ``stock`` is ms-swift's ``_get_per_token_logps_and_entropies_single``.
    """
    keep = batch.completion_mask.shape[1]
    rows = range(min(len(batch.completion_mask), _ROWS))
    mask = batch.completion_mask[: len(rows)]

    def at_once() -> PerToken:
        lengths = batch.inputs["attention_mask"][:, -keep:].sum(1)
        region = SimpleNamespace(logits_to_keep=keep, seq_lengths=lengths)
        return stock(model, dict(batch.given), region)[0][: len(rows)]

    def in_batches_of(size: int) -> PerToken:
        parts = (rows[start : start + size] for start in rows[::size])
        return torch.cat([_stock_rows(model, batch, stock, part) for part in parts])

    with torch.no_grad(), without_dropout(model):
        packed = ours()[: len(rows), :, 0]
        if batch.media is None:  # no row can be taken out with its pixels
            theirs = paired = at_once()
        else:
            theirs = in_batches_of(1)
            exact = dtype not in (torch.float16, torch.bfloat16)
            paired = theirs if exact else at_once() if is_flat(batch.given) else in_batches_of(2)
    return mismatch(packed, theirs, mask, limits(theirs, paired, mask, dtype))


def encodes_one_by_one(
    model: nn.Module,
    batch: MicroBatch,
    tower: Sequence[nn.Module],
    stock: Callable[..., Scores],
) -> str:
    """Why a tower, of which all ranks wait for every call, cannot encode another number of images on each.

    Empty if it can, or if rows cannot be told apart on some rank; the same on all of them.
    """
    device = batch.completion_mask.device
    if agreed_max(int(batch.media is None or len(batch.completion_mask) < 2), device):
        return ""
    calls: list[Counter[nn.Module]] = []
    with torch.no_grad(), without_dropout(model):
        for rows in (range(1), range(2)):
            with calls_of(tower) as counted:
                _stock_rows(model, batch, stock, rows)
            calls.append(counted)
    # A row without an image calls nothing, or once.
    more = any(number < calls[1][part] for part, number in calls[0].items())
    return _ONE_BY_ONE if agreed_max(int(more), device) else ""


@contextmanager
def calls_of(modules: Iterable[nn.Module]) -> Iterator[Counter[nn.Module]]:
    """While this is open, calls of the modules inside these that have parameters are counted."""
    counted: Counter[nn.Module] = Counter()
    parts = {part for module in modules for part in module.modules() if [*part.parameters(recurse=False)]}
    hooks = [part.register_forward_pre_hook(lambda part, _: counted.update([part])) for part in parts]
    try:
        yield counted
    finally:
        for hook in hooks:
            hook.remove()


def _stock_rows(
    model: nn.Module, batch: MicroBatch, stock: Callable[..., Scores], rows: range
) -> Float[Tensor, "rows keep"]:
    """Stock log-probs of some rows; without padding ms-swift is told how much of a row's end to take."""
    keep = batch.completion_mask.shape[1]
    inputs = batch.row_inputs(rows)
    width = min(keep, inputs["input_ids"].shape[1] - 1)
    region = SimpleNamespace(logits_to_keep=width, seq_lengths=torch.tensor([width]))
    return pad(stock(model, inputs, region)[0], (keep - width, 0))


def compare_passes(
    model: nn.Module,
    ours: Callable[[], Scores],
    stock: Callable[[], Scores],
    mask: Shaped[Tensor, "batch keep"],
    dtype: torch.dtype,
) -> str:
    """Why a pass that is stock but for the features of its images cannot be used; empty if it can."""
    with torch.no_grad(), without_dropout(model):
        theirs = stock()[0]
        return mismatch(ours()[0], theirs, mask, limits(theirs, theirs, mask, dtype))
