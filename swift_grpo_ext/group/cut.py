"""How a rank's completions are cut into micro-batches, so that there are prompts to share in them.

The same completions are generated, and stepped on, as the user's sizes say. This is the arithmetic for both
engines; what they know of sizes and memory is in `trainer/group_cut.py` and `megatron/group_cut.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gcd

from swift_grpo_ext.group.pack_memory import PackShape, fits

SWITCH = "SWIFT_GRPO_EXT_GROUP_BATCH"
TOKENS_WITHOUT_MEMORY = 16_384  # completion tokens of a micro-batch where free memory is not known


@dataclass(frozen=True)
class BatchSizes:
    """How one rank cuts its completions."""

    batch: int  # completions of a micro-batch
    accumulation: int  # micro-batches of an optimizer step
    per_generation: int  # micro-batches of a generation batch

    @property
    def held(self) -> int:
        """Completions of a generation batch."""
        return self.batch * self.per_generation

    def __str__(self) -> str:
        return f"{self.batch} x {self.accumulation}"


@dataclass(frozen=True)
class Cut:
    """A way of cutting a generation batch."""

    sizes: BatchSizes
    prompts: int  # most prompts of one micro-batch


@dataclass(frozen=True)
class Memory:
    """Memory for the activations of a micro-batch, on the rank that has least."""

    completion: int  # most tokens of a completion
    free: float | None = None  # bytes beside weights and states; None where they are not known
    shape: PackShape | None = None  # None where the config names no sizes of the model

    def holds(self, cut: Cut) -> bool:
        """True if the largest micro-batch of a cut fits."""
        if self.free is None or self.shape is None:
            return cut.sizes.batch * self.completion <= TOKENS_WITHOUT_MEMORY
        return fits(self.shape, cut.sizes.batch, cut.prompts, self.free)


def cut(
    sizes: BatchSizes,
    group: int,
    memory: Callable[[], Memory],
    *,
    why_not: Callable[[], str],
    more: Callable[[int], str],
    gathers: bool = False,
    stages: int = 1,
) -> tuple[BatchSizes, str]:
    """Micro-batches with as much of a group as fits, and one line about them, empty if nothing changes.

    Args:
        sizes: As the user typed them.
        group: Completions of a prompt, over all ranks.
        memory: Asked where there is something to choose.
        why_not: Why they have to stay as they are, asked where they could change; empty if they may.
        more: The option that makes a step of so many micro-batches.
        gathers: See `cuts`.
        stages: Least micro-batches of a step (of a pipeline).

    >>> cut(BatchSizes(1, 8, 8), 8, lambda: Memory(512), why_not=str, more=str)[0]
    BatchSizes(batch=8, accumulation=1, per_generation=1)
    """
    ways = [way for way in cuts(sizes, group, gathers=gathers) if way.sizes.accumulation >= stages]
    stay = f"micro-batches stay {sizes}: "
    if group == 1 or not ways:
        return sizes, _why_no_way(sizes, group, stay, more)
    if reason := why_not():
        return sizes, stay + reason
    room = memory()
    best = next(filter(room.holds, ways), None)
    if best is None:
        return sizes, f"{stay}no more of a group fits" if sizes.batch % group else ""
    why = "prompts are shared" if sizes.batch % group else "weights are gathered less often"
    return best.sizes, (
        f"Micro-batches regrouped so that {why}: {best.sizes} completions instead of {sizes}. "
        f"Clip ratios are now averaged over the new micro-batches. {SWITCH}=0 keeps your batch size"
    )


def _why_no_way(sizes: BatchSizes, group: int, stay: str, more: Callable[[int], str]) -> str:
    """Reason why no other cut shares more, with sizes that would; empty if prompts are shared as it is."""
    if group == 1:
        return ""
    if sizes.held == 1:
        return (
            "each rank has one completion of a prompt, so none is shared; "
            f"{more(group)} would give it all {group}, and forward 1 prompt and its images, not {group}"
        )
    steps = gcd(sizes.held, group) // gcd(sizes.held, group, sizes.batch)
    now = forwarded(sizes.batch, sizes.held, group)
    if steps == 1 or now == forwarded(sizes.held, sizes.held, group):
        return ""
    return (
        f"{stay}{sizes.batch * sizes.accumulation} completions per step cannot be cut into parts of a group "
        f"of {group}; {more(steps)} or a multiple of it could"
    )


def cuts(sizes: BatchSizes, group: int, *, gathers: bool = False) -> list[Cut]:
    """Ways to cut the same completions that forward fewer prompts: the best first, each a smaller one.

    Of those that forward equally many the smallest is the best, since it needs least memory. ``gathers`` says
    that every micro-batch gathers the weights anew and that ranks wait for each other in each layer (ZeRO-3,
    FSDP). There the largest is the best, even if it spares no prompt: several groups are one pack.
    """
    held = sizes.held
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


def forwarded(batch: int, held: int, group: int) -> tuple[int, int]:
    """Prompts that the rank with most of them forwards, in all and in one micro-batch."""
    of_ranks = [
        [(start + batch - 1) // group - start // group + 1 for start in starts]
        for starts in _starts(batch, held, group)
    ]
    return max(map(sum, of_ranks)), max(map(max, of_ranks))


def most_together(batch: int, held: int, group: int) -> int:
    """Most completions of one prompt in a micro-batch, where it may begin within a group and end within one.

    >>> most_together(3, 12, 2), most_together(1, 8, 8)
    (2, 1)
    """
    places = (start % group for starts in _starts(batch, held, group) for start in starts)
    of_each = ((min(batch, group - place), min(batch + place - group, group)) for place in places)
    return max(map(max, of_each))


def _starts(batch: int, held: int, group: int) -> Iterator[range]:
    """Of each rank where in a group its micro-batches begin."""
    return (range(first, first + held, batch) for first in range(0, group, gcd(held, group)))
