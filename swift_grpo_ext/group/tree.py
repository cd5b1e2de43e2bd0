"""Rows as a tree: what several rows begin with is one run of tokens, which the model goes over once.

A prompt with its completions is a tree of depth two. Rows of several turns are deeper: a turn's row is a
prefix of the next one's, and branches of a tree search share all turns up to their fork.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from jaxtyping import Int
from torch import Tensor

# Tokens that sharing a run has to spare, beyond whole prompts. Completions that open alike by chance would
# make levels of their own, and a level is one more call in every layer (`benchmarks/tree.py`, "every run").
# 64 is also what the delta rule takes at a time.
WORTH = 64


@dataclass(frozen=True)
class Node:
    """A run of tokens in a pack that one or more rows have behind the same tokens."""

    start: int  # place of its first token in the pack
    length: int  # tokens
    parent: int = -1  # number of the node that it continues, at its end; -1: its rows begin with it
    level: int = 0  # nodes above it
    first: int = 0  # place of its first token in its rows

    @property
    def stop(self) -> int:
        """One past its last token in the pack."""
        return self.start + self.length


@dataclass(frozen=True)
class Line:
    """A row as the tree sees it: two rows share a token where their keys are equal up to there."""

    keys: Int[Tensor, "fields tokens"]  # of each token: its id, its position, the image that it stands for
    prompt: int  # of these tokens belong to the prompt
    group: Hashable  # rows of one group have equal prompts, which are shared whatever that spares


@dataclass(frozen=True)
class Tree:
    """Nodes in the order of the pack: depth first, so that a subtree lies in one piece behind its root."""

    nodes: tuple[Node, ...]
    lines: tuple[int, ...]  # of each node the number of a row that it is taken from
    places: tuple[Int[Tensor, " _"], ...]  # of each row the places of its tokens in the pack

    @property
    def length(self) -> int:
        """Tokens of all nodes."""
        return self.nodes[-1].stop if self.nodes else 0


def build_tree(lines: Sequence[Line], worth: int = WORTH) -> Tree:
    """The tree of some rows, none of them empty.

    Rows are parted only where they differ: one that ends where others go on ends inside a node. ``worth``
    is the least number of tokens that a shared run has to spare, but for whole prompts.
    """
    nodes: list[Node] = []
    sources: list[int] = []
    paths: list[Int[Tensor, " _"]] = []
    places = [torch.arange(0)] * len(lines)
    waiting = [(list(range(len(lines))), 0, -1)] if lines else []
    while waiting:
        members, at, parent = waiting.pop()
        stop, parts = _next_run(lines, members, at, worth)
        if stop > at:
            start = nodes[-1].stop if nodes else 0
            own = torch.arange(start, start + stop - at)
            paths.append(own if parent < 0 else torch.cat([paths[parent], own]))
            sources.append(max(members, key=lambda number: lines[number].keys.shape[1]))
            level = nodes[parent].level + 1 if parent >= 0 else 0
            nodes.append(Node(start, stop - at, parent, level, at))
            parent = len(nodes) - 1
            for number in members:
                places[number] = paths[parent][: lines[number].keys.shape[1]]
        waiting += [(part, stop, parent) for part in reversed(parts)]
    return Tree(tuple(nodes), tuple(sources), tuple(places))


def _next_run(
    lines: Sequence[Line], members: Sequence[int], at: int, worth: int
) -> tuple[int, list[list[int]]]:
    """How far rows that are equal up to ``at`` share what follows, and who goes on together from there."""
    length = {number: lines[number].keys.shape[1] for number in members}
    stop = _agreement([lines[number].keys for number in members], at)
    forks: dict[tuple[int, ...], list[int]] = {}
    ended = []
    for number in members:
        if length[number] > stop:
            forks.setdefault(tuple(lines[number].keys[:, stop].tolist()), []).append(number)
        else:
            ended.append([number])
    shared = list(forks.values())
    apart = [*shared, *ended]  # who has the run for itself, if it is not shared
    if len(apart) == 1:
        return stop, shared

    certain = at
    prompts = _with_whole_prompts(lines, apart, at)
    if len(prompts) == 1:
        certain = lines[members[0]].prompt  # which all these rows share in any case
    else:
        apart = prompts
    runs = [max(min(length[number], stop) for number in part) - certain for part in apart]
    if sum(runs) - max(runs) >= worth:
        return stop, shared
    return certain, [part for part in apart if max(length[number] for number in part) > certain]


def _with_whole_prompts(lines: Sequence[Line], parts: Sequence[list[int]], at: int) -> list[list[int]]:
    """The parts, but rows of one prompt that is not over at ``at`` stay together."""
    parts_of: dict[Hashable, set[int]] = {}
    for part, numbers in enumerate(parts):
        for number in numbers:
            if lines[number].prompt > at:
                parts_of.setdefault(lines[number].group, set()).add(part)
    together: dict[Hashable, list[int]] = {}
    for part, numbers in enumerate(parts):
        for number in numbers:
            group = lines[number].group
            in_several = len(parts_of.get(group, ())) > 1
            together.setdefault(("prompt", group) if in_several else part, []).append(number)
    return list(together.values())


def even_parts(lines: Sequence[Line], parts: int) -> list[range]:
    """Neighbouring rows in so many parts, of which the largest pack is as small as can be; some may be empty.

    A pack has the tokens of its rows, but for those that each shares with the one before it: a cut costs what
    the rows on its two sides share.
    """
    lengths = [line.keys.shape[1] for line in lines]
    shared = [0]
    for before, line in pairwise(lines):
        shorter = min(before.keys.shape[1], line.keys.shape[1])
        shared.append(min(_agreement([before.keys, line.keys], 0), shorter))
    sizes = list(accumulate((length - same for length, same in zip(lengths, shared, strict=True)), initial=0))

    def tokens(first: int, stop: int) -> int:
        return sizes[stop] - sizes[first] + shared[first] if stop > first else 0

    stops = range(len(lines) + 1)
    largest = [tokens(0, stop) for stop in stops]  # of the rows up to each stop, in the parts so far
    cuts: list[list[int]] = []
    for _ in range(parts - 1):
        best = [min((max(largest[cut], tokens(cut, stop)), cut) for cut in range(stop + 1)) for stop in stops]
        largest = [most for most, _ in best]
        cuts.append([cut for _, cut in best])
    found = []
    stop = len(lines)
    for of_stop in reversed(cuts):
        found.append(range(of_stop[stop], stop))
        stop = of_stop[stop]
    return [range(stop), *reversed(found)]


def _agreement(keys: Sequence[Int[Tensor, "fields _"]], at: int) -> int:
    """One past the last place up to which no two of the rows differ; the longest one's end, if none do."""
    longest = max(keys, key=lambda row: row.shape[1])
    stop = longest.shape[1]
    for row in keys:
        compared = min(row.shape[1], stop)
        differing = (row[:, at:compared] != longest[:, at:compared]).any(0).nonzero()
        if len(differing):
            stop = at + int(differing[0])
    return stop
