"""Which rank computes which groups of a step: as many each, and about as many tokens."""

from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

EVEN = 0.1  # of the mean: what a rank may have above it before groups move, whose images are loaded again

Place: TypeAlias = tuple[int, int]  # a rank, and the number of one of its groups


def imbalance(tokens: Sequence[Sequence[int]]) -> float:
    """How many more tokens than the mean the rank with most of them has, as a share; 0 is even."""
    sums = [sum(of_rank) for of_rank in tokens]
    return max(sums) * len(sums) / sum(sums) - 1


def dealt(tokens: Sequence[Sequence[int]]) -> list[list[Place]]:
    """Places of the groups that each rank is to have: as many as now, the largest first.

    Where ranks are `EVEN` each has its own. Else the largest group that is left goes to the set with fewest
    tokens that is not full (longest processing time first, Graham 1969, https://doi.org/10.1137/0117039), and
    a set goes to a rank that has much of it.
    """
    own = [[(rank, number) for number in range(len(of_rank))] for rank, of_rank in enumerate(tokens)]
    if imbalance(tokens) <= EVEN:
        return [_largest_first(tokens, places) for places in own]
    room = len(own[0])
    sets: list[list[Place]] = [[] for _ in tokens]
    sums = [0] * len(tokens)
    for rank, number in _largest_first(tokens, list(chain(*own))):
        least = min((which for which in range(len(sets)) if len(sets[which]) < room), key=sums.__getitem__)
        sets[least].append((rank, number))
        sums[least] += tokens[rank][number]
    return _where_they_are(sets)


def _largest_first(tokens: Sequence[Sequence[int]], places: Sequence[Place]) -> list[Place]:
    """Places by the tokens of their groups; of equal ones the first stays first."""
    return sorted(places, key=lambda place: -tokens[place[0]][place[1]])


def _where_they_are(sets: Sequence[list[Place]]) -> list[list[Place]]:
    """The sets in the order of the ranks that get them."""
    here = [
        (-sum(holder == rank for holder, _ in places), rank, which)
        for which, places in enumerate(sets)
        for rank in range(len(sets))
    ]
    of_ranks: dict[int, list[Place]] = {}
    given: set[int] = set()
    for _, rank, which in sorted(here):
        if rank not in of_ranks and which not in given:
            of_ranks[rank] = sets[which]
            given.add(which)
    return [of_ranks[rank] for rank in range(len(sets))]
