"""Micro-batches made of whole groups, so that there is a prompt to share in them."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from swift_grpo_ext.errors import RefusedError

SWITCH = "SWIFT_GRPO_EXT_GROUP_BATCH"


@dataclass(frozen=True)
class BatchSizes:
    """How one rank cuts its completions.

    Attributes:
        batch: Completions of a micro-batch.
        accumulation: Micro-batches of an optimizer step.
        per_generation: Micro-batches of a generation batch.
    """

    batch: int
    accumulation: int
    per_generation: int


def grouped(sizes: BatchSizes, group: int, completion: int, budget: int = 0) -> BatchSizes:
    """The same completions per step and per generation, in micro-batches that hold parts of one group only.

    Args:
        sizes: As asked for.
        group: Completions of one prompt (``num_generations``).
        completion: Most tokens of a completion.
        budget: Most completion tokens of a micro-batch; 0 for no limit. A group that is longer is split
            into equal parts.

    Raises:
        RefusedError: The completions of a rank or of a step cannot be cut so.
    """
    of_generation = sizes.batch * sizes.per_generation
    of_step = sizes.batch * sizes.accumulation
    batch = gcd(of_generation, group)
    if batch == 1:
        raise RefusedError(
            f"{of_generation} completions per generation and rank share no prompt in groups of {group}",
            where=SWITCH,
            fix="make per_device_train_batch_size x steps_per_generation a multiple of num_generations",
        )
    if budget:
        batch = _within(batch, completion, budget)
    if of_step % batch:
        raise RefusedError(
            f"{of_step} completions per step and rank cannot be cut into micro-batches of {batch}",
            where=SWITCH,
            fix=f"make per_device_train_batch_size x gradient_accumulation_steps a multiple of {batch}",
        )
    if not budget and sizes.batch % batch == 0:
        return sizes  # whole groups already
    return BatchSizes(batch, of_step // batch, of_generation // batch)


def automatic(sizes: BatchSizes, group: int, fits: int) -> BatchSizes:
    """The same completions, in the largest micro-batches of one group each that fit.

    Args:
        sizes: As asked for.
        group: Completions of one prompt.
        fits: Most completions of a micro-batch.

    Returns:
        Other sizes only if more completions of a prompt share a micro-batch than before.
    """
    held = gcd(sizes.batch * sizes.per_generation, group)
    of_step = sizes.batch * sizes.accumulation
    now = gcd(held, sizes.batch)
    fitting = (size for size in range(min(held, fits), now, -1) if held % size == 0 and of_step % size == 0)
    batch = next(fitting, 0)
    if not batch:
        return sizes
    return BatchSizes(batch, of_step // batch, sizes.batch * sizes.per_generation // batch)


def _within(batch: int, completion: int, budget: int) -> int:
    """The largest divisor of ``batch`` whose completions fit into the budget."""
    if completion > budget:
        raise RefusedError(
            f"one completion may have {completion} tokens, more than the {budget} of a micro-batch",
            where=f"{SWITCH}_TOKENS",
            fix=f"at least {completion}, or a smaller --max_completion_length",
        )
    return max(size for size in range(1, batch + 1) if batch % size == 0 and size * completion <= budget)
