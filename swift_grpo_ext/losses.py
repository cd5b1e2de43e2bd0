"""The losses of ``--loss_type``, one row each: how micro-batches may be cut and what may be left out.

A new loss is a row here and its code. One that has no row is computed as ms-swift computes it: its
micro-batches stay as the user typed them, and every completion is forwarded.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """Properties of one loss that the trainer and ``check`` need."""

    name: str
    per_micro_batch: bool = False  # divided by what one micro-batch holds, so its size is part of the result
    over_window: bool = False  # divided by the tokens of all micro-batches of an optimizer step
    whole_groups: bool = False  # compares the completions of a group, which must lie in one micro-batch
    # What it does with log-probs of completions whose advantage is 0, in a clause; empty: nothing.
    reads_zero_advantage: str = ""
    # Liger's version is divided by what one micro-batch holds: its tokens, or its longest completion.
    liger_per_micro_batch: bool = False


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("grpo"),
        Loss("bnpo", per_micro_batch=True, liger_per_micro_batch=True),
        Loss("dr_grpo"),
        Loss("dapo", over_window=True, liger_per_micro_batch=True),
        Loss("cispo", over_window=True, liger_per_micro_batch=True),
        Loss("sapo"),
        Loss("real", whole_groups=True, reads_zero_advantage="compares them"),  # arXiv 2602.05630
        Loss("fipo", over_window=True, reads_zero_advantage="logs them"),
        Loss("luspo", liger_per_micro_batch=True),
        Loss("vespo", liger_per_micro_batch=True),
    )
}


def why_sizes_matter(name: str, *, with_liger: bool, top_entropy_quantile: float) -> str:
    """Reason, in a clause, that a run depends on its micro-batch sizes, so that they must not change.

    Empty if it does not.
    """
    loss = loss_named(name)
    if loss.per_micro_batch:
        return f"loss_type {name} is defined per micro-batch"
    if with_liger and loss.liger_per_micro_batch:
        return f"loss_type {name} of liger is defined per micro-batch"
    if name not in LOSSES:
        return f"nothing is known about loss_type {name}"
    return "top_entropy_quantile is defined per micro-batch" if top_entropy_quantile < 1.0 else ""


def loss_named(name: str) -> Loss:
    """The row of a loss; for a name without one, a row that may read completions of advantage 0."""
    return LOSSES.get(name) or Loss(name, reads_zero_advantage="may read them")
