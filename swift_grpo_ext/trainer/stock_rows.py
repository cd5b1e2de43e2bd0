"""ms-swift's own log-probs of a micro-batch's first rows, with which the first pass of a kind is compared."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from swift_grpo_ext.group.micro_batch import MicroBatch, is_flat, parts_of
from swift_grpo_ext.group.self_check import compare, without_dropout
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.one_pass import OnePass, Request
from swift_grpo_ext.trainer.samples import PerToken, Scores

_ROWS = 8
_ONE_BY_ONE = "the vision tower calls layers once for each image, so ranks would deadlock; --deepspeed zero2"
Stock = Callable[..., Scores]  # ms-swift's `_get_per_token_logps_and_entropies_single`


def why_wrong(
    one_pass: OnePass,
    request: Request,
    plain: nn.Module,
    stock: Stock,
    stock_in_step: Callable[[], Scores],
    dtype: torch.dtype,
) -> str:
    """Reason why our scores of a request cannot be used, in a clause; empty if they can.

    Args:
        one_pass: Makes ours.
        request: Of the pass.
        plain: The model without the hooks of its wrappers.
        stock: Makes theirs, of some rows.
        stock_in_step: Makes theirs of the whole micro-batch, where only the features of images are ours.
        dtype: Of the forward.
    """
    batch = request.batch
    if one_pass.is_stock_forward:
        return compare(
            [plain],
            lambda: one_pass.run(request).logps,
            lambda: (stock_in_step()[0],) * 2,
            batch.completion_mask,
            dtype,
        )
    rows = range(min(len(batch.completion_mask), _ROWS))
    # Without the hooks of its wrappers, of all completions, and without entropies.
    bare = replace(request, model=plain, tokens=None, with_entropy=False)
    return compare(
        [plain],
        lambda: one_pass.scores(bare, parts_of(batch, None, bare.parts))[: len(rows), :, 0],
        lambda: _in_two_layouts(plain, batch, stock, rows, dtype),
        batch.completion_mask[: len(rows)],
        dtype,
    )


def _in_two_layouts(
    model: nn.Module, batch: MicroBatch, stock: Stock, rows: range, dtype: torch.dtype
) -> tuple[PerToken, PerToken]:
    """Log-probs of rows one by one, and below fp32 in another layout; whole where rows cannot be split."""

    def in_batches_of(size: int) -> PerToken:
        parts = (rows[start : start + size] for start in rows[::size])
        return torch.cat([_stock_rows(model, batch, stock, part) for part in parts])

    if batch.media is None:  # no row can be taken out with its pixels
        return (_at_once(model, batch, stock, rows),) * 2
    alone = in_batches_of(1)
    if dtype not in (torch.float16, torch.bfloat16):
        return alone, alone
    return alone, _at_once(model, batch, stock, rows) if is_flat(batch.given) else in_batches_of(2)


def encodes_one_by_one(model: nn.Module, batch: MicroBatch, tower: Sequence[nn.Module], stock: Stock) -> str:
    """Reason why a tower, whose calls all ranks wait for, cannot encode different numbers of images on each.

    Empty if it can, or if rows cannot be told apart on some rank; the same on all of them.
    """
    device = batch.completion_mask.device
    if agreed_max(int(batch.media is None or len(batch.completion_mask) < 2), device):
        return ""
    calls: list[Counter[nn.Module]] = []
    with torch.no_grad(), without_dropout(model):
        for rows in (range(1), range(2)):
            with calls_of(tower) as counted:
                several = len(rows) > 1 and is_flat(batch.given)
                (_at_once if several else _stock_rows)(model, batch, stock, rows)
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


def _at_once(model: nn.Module, batch: MicroBatch, stock: Stock, rows: range) -> PerToken:
    """Stock log-probs of the first rows, of a pass over the whole micro-batch as it is."""
    keep = batch.completion_mask.shape[1]
    lengths = batch.inputs["attention_mask"][:, -keep:].sum(1)
    region = SimpleNamespace(logits_to_keep=keep, seq_lengths=lengths)
    return stock(model, dict(batch.given), region)[0][: len(rows)]


def _stock_rows(model: nn.Module, batch: MicroBatch, stock: Stock, rows: range) -> Float[Tensor, "rows keep"]:
    """Stock log-probs of some rows, padded: of one, where ms-swift takes rows without padding.

    It is then told how much of a row's end to take.
    """
    keep = batch.completion_mask.shape[1]
    inputs = batch.row_inputs(rows)
    width = min(keep, inputs["input_ids"].shape[1] - 1)
    region = SimpleNamespace(logits_to_keep=width, seq_lengths=torch.tensor([width]))
    return pad(stock(model, inputs, region)[0], (keep - width, 0))
