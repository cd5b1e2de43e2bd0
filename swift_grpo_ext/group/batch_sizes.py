"""Micro-batches made of whole groups, so that there is a prompt to share in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

from swift_grpo_ext.errors import RefusedError

SWITCH = "SWIFT_GRPO_EXT_GROUP_BATCH"


def groups_in(completions: int, group: int) -> int:
    """How many whole groups a batch holds; 0 where they do not fill it."""
    return 0 if group < 1 or completions % group else completions // group


@dataclass(frozen=True)
class BatchSizes:
    """How one rank cuts its completions."""

    batch: int  # completions of a micro-batch
    accumulation: int  # micro-batches of an optimizer step
    per_generation: int  # micro-batches of a generation batch


def grouped(sizes: BatchSizes, group: int, completion: int, budget: int = 0) -> BatchSizes:
    """The same completions in micro-batches that hold parts of one group only.

    ``budget`` is the most completion tokens of a micro-batch, 0 for no limit: longer groups are split.

    Raises:
        RefusedError: The completions of a generation batch or of a step cannot be cut so, or one is over
            the budget.
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


@dataclass(frozen=True)
class Cut:
    """A way of cutting a generation batch."""

    sizes: BatchSizes
    prompts: int  # most prompts of one micro-batch


def cuts(sizes: BatchSizes, group: int, *, gathers: bool = False) -> list[Cut]:
    """Ways to cut the same completions that forward fewer prompts: the best first, each a smaller one.

    Of those that forward equally many the smallest is the best, since it needs least memory. ``gathers`` says
    that every micro-batch gathers the weights anew and that ranks wait for each other in each layer (ZeRO-3,
    FSDP). Then the largest is, also one that spares no prompt: several groups are one pack.
    """
    held = sizes.batch * sizes.per_generation
    of_step = sizes.batch * sizes.accumulation
    now, _ = forwarded(sizes.batch, held, group)
    dividing = [size for size in range(1, of_step + 1) if of_step % size == held % size == 0]
    ways: list[Cut] = []
    for size in sorted(
        dividing, key=lambda size: (forwarded(size, held, group)[0], -size if gathers else size)
    ):
        number, most = forwarded(size, held, group)
        better = number < now or (gathers and number == now and size > sizes.batch)
        if better and (not ways or size < ways[-1].sizes.batch):
            ways.append(Cut(BatchSizes(size, of_step // size, held // size), most))
    return ways


def first_fitting(ways: Sequence[Cut], fits: Callable[[Cut], bool]) -> int:
    """Number of the best cut that fits; how many there are where none does."""
    return next((number for number, cut in enumerate(ways) if fits(cut)), len(ways))


def forwarded(batch: int, held: int, group: int) -> tuple[int, int]:
    """Prompts that the rank with most of them forwards, in all and in one micro-batch."""
    of_ranks = []
    for first in range(0, group, gcd(held, group)):  # where in a group a rank's completions may begin
        starts = range(first, first + held, batch)
        of_ranks.append([(start + batch - 1) // group - start // group + 1 for start in starts])
    return max(map(sum, of_ranks)), max(map(max, of_ranks))


def _within(batch: int, completion: int, budget: int) -> int:
    """The largest divisor of ``batch`` whose completions fit into the budget.

    Raises:
        RefusedError: One completion alone is over the budget.
    """
    if completion > budget:
        raise RefusedError(
            f"one completion may have {completion} tokens, more than the {budget} of a micro-batch",
            where=f"{SWITCH}_TOKENS",
            fix=f"at least {completion}, or a smaller --max_completion_length",
        )
    return max(size for size in range(1, batch + 1) if batch % size == 0 and size * completion <= budget)
