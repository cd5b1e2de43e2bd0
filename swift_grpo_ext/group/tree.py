"""Rows as a tree: a prefix of several rows is one run of tokens, which the model computes once.

A prompt with its completions is a tree of depth two. Rows of several turns are deeper: a turn's row is a
prefix of the next one's, and branches of a tree search share all turns up to their fork.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

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
class Row:
    """A row of a batch: two rows share a token where their keys are equal up to there."""

    keys: Int[Tensor, "fields tokens"]  # of each token: its id, its position, the image that it stands for
    prompt: int  # of these tokens belong to the prompt
    start: int = 0  # place of the first of them among all of the batch

    @property
    def tokens(self) -> int:
        """Its tokens in a pack without sharing."""
        return self.keys.shape[1]

    @cached_property
    def group(self) -> bytes:
        """Its prompt: rows of one group share it, however little that spares."""
        return self.keys[:, : self.prompt].contiguous().numpy().tobytes()


@dataclass(frozen=True)
class Tree:
    """Nodes in the order of the pack: depth first, so that a subtree lies in one piece behind its root."""

    nodes: tuple[Node, ...]
    places: tuple[Int[Tensor, " _"], ...]  # of each row the places of its tokens in the pack

    @property
    def length(self) -> int:
        """Tokens of all nodes."""
        return self.nodes[-1].stop if self.nodes else 0


def paths(nodes: Sequence[Node]) -> list[Int[Tensor, " _"]]:
    """Of each node the places in the pack of its tokens, behind those of the nodes above it."""
    whole: list[Int[Tensor, " _"]] = []
    for node in nodes:
        own = torch.arange(node.start, node.stop)
        whole.append(own if node.parent < 0 else torch.cat([whole[node.parent], own]))
    return whole


def build_tree(rows: Sequence[Row], worth: int = WORTH) -> Tree:
    """The tree of some rows, none of them empty.

    Rows are parted only where they differ: one that ends where others go on ends inside a node. ``worth``
    is the least number of tokens that a shared run has to spare, but for whole prompts.
    """
    nodes: list[Node] = []
    ends = [0] * len(rows)  # of each row the node that it ends in
    waiting = [(list(range(len(rows))), 0, -1)] if rows else []
    while waiting:
        members, at, parent = waiting.pop()
        stop, parts = _next_run(rows, members, at, worth)
        if stop > at:
            start = nodes[-1].stop if nodes else 0
            level = nodes[parent].level + 1 if parent >= 0 else 0
            nodes.append(Node(start, stop - at, parent, level, at))
            parent = len(nodes) - 1
            for number in members:
                ends[number] = parent
        waiting += [(part, stop, parent) for part in reversed(parts)]
    whole = paths(nodes)
    places = [whole[end][: row.tokens] for end, row in zip(ends, rows, strict=True)]
    return Tree(tuple(nodes), tuple(places))


def _next_run(
    rows: Sequence[Row], members: Sequence[int], at: int, worth: int
) -> tuple[int, list[list[int]]]:
    """How far rows that are equal up to ``at`` share what follows, and who goes on together from there."""
    stop = _agreement([rows[number].keys for number in members], at)
    # A row goes on with its next token, or ends there, by itself.
    follows: dict[int, Hashable] = {
        number: tuple(rows[number].keys[:, stop : stop + 1].flatten().tolist()) or number
        for number in members
    }
    parts = by_key(follows)
    if len(parts) == 1:
        return stop, []

    # Who has the run for itself, if it is not shared, and what these rows share in any case.
    apart = by_key(_with_whole_prompts(rows, follows, at))
    certain = at
    if len(apart) == 1:
        apart = parts
        certain = rows[members[0]].prompt
    runs = [max(min(rows[number].tokens, stop) for number in part) - certain for part in apart]
    if sum(runs) - max(runs) < worth:
        stop = certain
        parts = apart
    return stop, [part for part in parts if max(rows[number].tokens for number in part) > stop]


def _with_whole_prompts(rows: Sequence[Row], follows: Mapping[int, Hashable], at: int) -> dict[int, Hashable]:
    """Keys that rows go on with; the group's, where rows of one prompt, not over at ``at``, would part."""
    ways = {(rows[number].group, key) for number, key in follows.items() if rows[number].prompt > at}
    of_group = Counter(group for group, _ in ways)
    return {n: rows[n].group if of_group[rows[n].group] > 1 else key for n, key in follows.items()}


def by_key(keys: Mapping[int, Hashable]) -> list[list[int]]:
    """Numbers with equal keys together."""
    parts: dict[Hashable, list[int]] = {}
    for number, key in keys.items():
        parts.setdefault(key, []).append(number)
    return list(parts.values())


def even_parts(rows: Sequence[Row], parts: int) -> list[range]:
    """Neighbouring rows in so many parts, of which the largest pack is as small as can be; some may be empty.

    A pack has the tokens of its rows, but for those that each shares with the one before it: a cut costs what
    the rows on its two sides share.
    """
    lengths = [row.tokens for row in rows]
    shared = [0]
    for before, row in pairwise(rows):
        shared.append(min(_agreement([before.keys, row.keys], 0), before.tokens, row.tokens))

    def starts(most: int) -> list[int]:
        """First rows of the fewest parts with at most so many tokens; a longer row is a part by itself."""
        firsts: list[int] = []
        tokens = most
        for number, length in enumerate(lengths):
            tokens += length - shared[number]
            if tokens > most:
                firsts.append(number)
                tokens = length
        return firsts

    # Fewer neighbours never have more tokens, so parts that are filled one after another are the fewest.
    least = bisect_left(range(sum(lengths)), True, key=lambda most: len(starts(most)) <= parts)
    bounds = starts(least)
    bounds += [len(rows)] * (parts + 1 - len(bounds))
    return [range(first, stop) for first, stop in pairwise(bounds)]


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
